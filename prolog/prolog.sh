#!/bin/sh
# Slurm Prolog: refuses a job on a node whose own agent says, freshly and of this boot, that its hardware is broken.
#
# Slurm drains a node and holds the job when a prolog fails, so this gate fails open: whatever is wrong with the
# verdict itself (missing, stale, of another boot, damaged) lets the job start and leaves failopen.prolog behind.
# Shell builtins only: no fork, no network, no driver call, no Slurm call. slurmd gives a prolog no PATH.
LC_ALL=C
run_dir=${SLC_RUN_DIR:-/run/slurm-lifecycle}
stale_after_s=120

fail_open() {
    { printf '%s\n' "$1" >"$run_dir/failopen.prolog"; } 2>/dev/null
    exit 0
}

[ -f "$run_dir/verdict" ] || fail_open 'no verdict: is slurm-lifecycle-agent running?'
# A line without its newline is a truncated file: `read` then fails, and so does the gate.
{
    read -r version level written_s boot_id code text && read -r gate_word gate rest
} 2>/dev/null <"$run_dir/verdict" || fail_open 'verdict unreadable or truncated'
read -r uptime_s rest_of_uptime 2>/dev/null </proc/uptime || fail_open 'no /proc/uptime'
read -r this_boot 2>/dev/null </proc/sys/kernel/random/boot_id || fail_open 'no boot id'
uptime_s=${uptime_s%%.*}

case $version/$gate_word/$gate/$rest in
    v1/gate/yes/ | v1/gate/no/) ;;
    *) fail_open 'verdict is not of version v1' ;;
esac
case $level in
    ok | warn | drain) ;;
    *) fail_open 'verdict has no known level' ;;
esac
# Digits only, no leading zero (octal in arithmetic), and short enough not to overflow.
case $written_s in
    '' | *[!0-9]* | 0?* | ?????????????*) fail_open 'verdict has no valid time' ;;
esac
[ "$boot_id" = "$this_boot" ] || fail_open 'verdict is of another boot'
[ "$written_s" -le "$uptime_s" ] || fail_open 'verdict is from the future'
[ $((uptime_s - written_s)) -le "$stale_after_s" ] || fail_open 'verdict is stale: is slurm-lifecycle-agent running?'

[ "$level/$gate" = drain/yes ] || exit 0

# The agent replaces Slurm's bare "Prolog error" by the true reason where it finds this file.
case ${SLURM_JOB_ID:-} in
    '' | *[!0-9]*) ;;
    *) { printf '%s\n' "$code $text" >"$run_dir/refused.$SLURM_JOB_ID"; } 2>/dev/null ;;
esac
exit 1
