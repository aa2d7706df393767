"""Alembic's entry: runs the revisions on the connection that `store.migrate` hands over."""

from alembic import context

from slurm_lifecycle.store.schema import metadata


def _run() -> None:
    connection = context.config.attributes["connection"]
    # SQLite does DDL inside transactions; with this an upgrade that is cut off leaves the old schema.
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()


_run()
