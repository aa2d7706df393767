"""The oracle of power: whoever takes it gives it back."""

from slurm_lifecycle.simulation.safety.facts import Facts
from slurm_lifecycle.simulation.safety.oracles import Call, Lasting, Oracle, Patience, TickFacts


class PowerGivenBack(Oracle):
    """A machine that the daemon switched off is on again before its attempt ends, whatever happens meanwhile.

    Not judged where controllers accept what they do not do, hang or lie: a machine may then stay off although
    it was told to go on, which the attempt says.
    """

    name = "power that is taken is given back"

    def __init__(self, facts: Facts) -> None:
        """Nothing was taken yet."""
        super().__init__(facts)
        self._taken: dict[str, str] = {}
        self._patience = Patience()

    def happened(self, call: Call) -> None:
        """Power is taken, or given back."""
        if call.what == "power":
            self._taken[call.node] = call.op_id
        elif call.what == "restore":
            self._taken.pop(call.node, None)

    def ticked(self, tick: TickFacts) -> None:
        """Machines that are off by an attempt that has ended."""
        settings, machines = self.facts.bmcs.settings, self.facts.machines
        if settings.deaf or settings.hangs or settings.lies:
            self._taken.clear()
            return
        for node in [node for node in self._taken if node not in machines or machines.machine(node).up]:
            # Left alone so far: asked to shut down it may still do so, or it was switched on by a person.
            if node not in machines or not self._open(node):
                del self._taken[node]
        off: set[Lasting] = {
            (node, op_id, "off")
            for node, op_id in self._taken.items()
            if not machines.machine(node).powered and not self._open(node)
        }
        self.judged += bool(self._taken)
        for node, op_id, _ in self._patience.lasted(off, counts=tick.result is not None):
            self.broken(node, f"{op_id} has ended and left the machine off")

    def _open(self, node: str) -> bool:
        return any(one.rung == "power" for one in self.facts.journal.unresolved().get(node, ()))
