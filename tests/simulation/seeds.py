"""Seeds of the safety suite that found something, each with what it found.

What a seed plays changes whenever the simulation draws differently; those that found something before are
run all the same, for they are as good as others.
"""

# In the code as it was before the suite.
FOUND: tuple[tuple[int, str], ...] = (
    (8, "a node that died under a stale reason of ours stayed DOWN and was nobody's case"),
    (42, "a late boot that had mended nothing was sent to the same checks for ever"),
    (151, "a reboot that was carried out but not marked counted as never sent where the agent did not start"),
    (288, "an agent that spoke late proved a boot that had begun before the reimage"),
    (217, "a node undrained under its fence waited for a place among the nodes out"),
    (187, "an unreadable node in work gave its partition's place away"),
    (34, "a fence that a hung slurmctld made after its case was closed stood for ever"),
    (1085, "a lifted code lifted a new fault of another code with it"),
    (421, "a ticket that was not sent was sent although the configuration forbade it by then"),
    (2202, "a node that rebooted by itself while its checks settled went back without new ones"),
    (2275, "a case was closed on two sightings in service between which the node was out"),
    (1244, "a reboot that took its node down, and was not marked, counted as never sent"),
    (1373, "a node that booted after its checks, before its drain was lifted, went back on them"),
    (1626, "a drain was lifted in the middle of a reboot that a person had begun after the tick's read"),
    (20370, "a verdict of the boot before counted towards the settling time of this one"),
    (20494, "a reason was written anew before a second reboot where drains were not allowed"),
    (302, "a failed reimage was given up by a daemon that may not act on the cluster"),
    (95, "a power cycle past its deadline, on a node that a person had taken over, called nobody"),
    (29, "a power cycle of a machine that was taken out of the cluster never ended"),
)
