"""The composition root: the only place that knows adapters and application together."""

import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.ports import Notifier, Provisioner
from slurm_lifecycle.provision.command import CommandProvisioner
from slurm_lifecycle.provision.staged import StagedProvisioner
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials, CredentialsError
from slurm_lifecycle.service.bmc_config import BmcConfig
from slurm_lifecycle.service.config import Config
from slurm_lifecycle.service.credentials import Secret
from slurm_lifecycle.service.daemon import Daemon, SystemClock
from slurm_lifecycle.service.executor import Executor, Ports
from slurm_lifecycle.service.log import configure_logging
from slurm_lifecycle.service.metrics import Metrics
from slurm_lifecycle.service.node_command import TemplateNodeCommand
from slurm_lifecycle.service.notify import CommandNotifier, LogNotifier
from slurm_lifecycle.service.reconciler import Reconciler, TickResult
from slurm_lifecycle.service.tickets import FileTickets
from slurm_lifecycle.service.without_bmc import WithoutBmc
from slurm_lifecycle.slurm.scontrol import ScontrolSettings, ScontrolSlurm
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.opening import upgrade_store as upgrade
from slurm_lifecycle.store.sql_store import SqlStore

_LOG = logging.getLogger("slurm_lifecycle.daemon")
_PRUNE_EVERY_S = 6 * 3600.0


def host_name() -> str:
    """The name under which a store belongs to this host."""
    return socket.gethostname()


def make_slurm(config: Config) -> ScontrolSlurm:
    """The Slurm back end that the configuration asks for."""
    settings = config.slurm
    return ScontrolSlurm(
        ScontrolSettings(
            scontrol=settings.scontrol,
            squeue=settings.squeue,
            fence_users=settings.user,
            timeout_s=settings.timeout_s,
        )
    )


def open_store_readonly(config: Config) -> SqlStore:
    """The store for queries; works while the daemon runs."""
    return open_store(config.store_path, host=host_name(), acting=False, read_only=True)


def open_store_for_requests(config: Config) -> SqlStore:
    """The store to put a person's request into; works while the daemon runs."""
    return open_store(config.store_path, host=host_name(), acting=False)


def upgrade_store(config: Config) -> Path | None:
    """Bring the store to this release's schema; returns the copy made before."""
    return upgrade(config.store_path, host=host_name())


def make_notifier(config: Config) -> Notifier:
    """The site's own command where there is one, the log otherwise."""
    return CommandNotifier(config.notify_command) if config.notify_command else LogNotifier()


def make_provisioner(config: Config) -> Provisioner:
    """The site's commands; where it boots from the network by the BMC, they only say what is to be booted."""
    reimage = config.reimage
    made = CommandProvisioner(
        reimage.start,
        reimage.poll,
        abort=reimage.abort,
        image=reimage.image,
        timeout_s=reimage.timeout_s,
    )
    return StagedProvisioner(made) if config.policy.reimage_by_pxe and not reimage.start else made


def make_bmc_pool(bmcs: BmcConfig) -> BmcPool:
    """The BMCs that the configuration names."""
    settings = {
        node: BmcSettings(
            node=node,
            address=one.address,
            profile=one.profile,
            credentials=_credentials(one.secret),
            serial=one.serial,
            ca_file=one.ca_file,
            fingerprint=one.fingerprint,
            insecure=one.insecure,
            basic=one.basic,
        )
        for node, one in bmcs.entries.items()
    }
    return BmcPool(settings, threads=bmcs.threads)


def _credentials(secret: Callable[[], Secret]) -> Callable[[], Credentials]:
    def ask() -> Credentials:
        try:
            return Credentials(*secret())
        except ConfigError as error:
            raise CredentialsError(str(error)) from None

    return ask


def make_daemon(config: Config, store: SqlStore, stop: threading.Event) -> Daemon:
    """Wire the daemon over an acting store."""
    slurm = make_slurm(config)
    clock = SystemClock(stop)
    provisioner = make_provisioner(config)
    bmc = WithoutBmc() if config.bmc is None else make_bmc_pool(config.bmc)
    ports = Ports(
        slurm=slurm,
        store=store,
        clock=clock,
        provisioner=provisioner,
        bmc=bmc,
        node_command=TemplateNodeCommand(config.node_command),
        tickets=FileTickets(config.rma_folder, config.rma_command),
        notifier=make_notifier(config),
        history=store.history,
    )
    reconciler = Reconciler(
        slurm=slurm,
        store=store,
        provisioner=provisioner,
        bmc=bmc,
        health=WithoutBmc(),
        executor=Executor(ports, config.policy),
        clock=clock,
        policy=config.policy,
        stopwatch=time.monotonic,
    )
    metrics = Metrics()
    if config.daemon.metrics_port:
        metrics.serve(config.daemon.metrics_port)
    keeper = _StoreKeeper(store, config.policy.mode.value)

    def on_tick(result: TickResult) -> None:
        metrics.record_tick(
            plan=result.plan, records=result.records, seconds=sum(result.seconds.values()), at=result.at
        )
        keeper.after_tick(result)

    return Daemon(
        reconciler=reconciler,
        clock=clock,
        stop=stop,
        interval_s=config.daemon.interval_s,
        on_tick=on_tick,
        on_failure=metrics.record_failure,
    )


class _StoreKeeper:
    """Housekeeping after a tick: when the last one was, and old rows forgotten now and then."""

    def __init__(self, store: SqlStore, mode: str) -> None:
        self._store = store
        self._mode = mode
        self._pruned_at: float | None = None

    def after_tick(self, result: TickResult) -> None:
        self._store.note_tick(result.at, self._mode)
        if self._pruned_at is None or result.at - self._pruned_at >= _PRUNE_EVERY_S:
            self._store.prune(result.at)
            self._pruned_at = result.at


def run_daemon(config: Config, *, once: bool = False) -> int:
    """Run the daemon in the foreground.

    Args:
        once: one tick, then stop.

    Returns:
        0, or 3 when the one tick could not read what it needs.

    Raises:
        NotTheActor: another daemon acts on the store.
        ConfigError: the metrics port is taken.
    """
    configure_logging(config.daemon.log_format)
    stop = threading.Event()
    store = open_store(config.store_path, host=host_name(), acting=True)
    try:
        daemon = make_daemon(config, store, stop)
        identity = store.identity()
        _LOG.info(
            "mode %s, instance %s, generation %d",
            config.policy.mode.value,
            identity.instance,
            identity.generation,
            extra={"event": "started"},
        )
        if once:
            return 0 if daemon.tick() else 3
        daemon.run()
        return 0
    finally:
        store.close()
