#!/bin/sh
# Slurm Epilog: records the end of the job for the agent, and fails only for broken hardware.
#
# Slurm drains a node when an epilog fails, and may run an epilog several times for one job: so this one is
# idempotent, and only a fresh `drain` verdict of this boot with `gate yes` makes it exit non-zero.
# slurmd gives an epilog no PATH, and waits for whatever holds its output: nothing runs in the background here.
LC_ALL=C
PATH=/usr/sbin:/usr/bin:/sbin:/bin
run_dir=${SLC_RUN_DIR:-/run/slurm-lifecycle}
stale_after_s=120
job_id=${SLURM_JOB_ID:-}

fail_open() {
    { printf '%s\n' "$1" >"$run_dir/failopen.epilog"; } 2>/dev/null
    exit 0
}

read -r uptime_s rest_of_uptime 2>/dev/null </proc/uptime || fail_open 'no /proc/uptime'
read -r this_boot 2>/dev/null </proc/sys/kernel/random/boot_id || fail_open 'no boot id'
uptime_s=${uptime_s%%.*}

case $job_id in
    '' | *[!0-9]*) job_id= ;;
    *) { printf '%s\n' "v1 $uptime_s $this_boot $job_id" >"$run_dir/job_end.$job_id"; } 2>/dev/null ;;
esac

[ -f "$run_dir/verdict" ] || fail_open 'no verdict: is slurm-lifecycle-agent running?'
{
    read -r version level written_s boot_id code text && read -r gate_word gate rest
} 2>/dev/null <"$run_dir/verdict" || fail_open 'verdict unreadable or truncated'
case $version/$gate_word/$gate/$rest in
    v1/gate/yes/ | v1/gate/no/) ;;
    *) fail_open 'verdict is not of version v1' ;;
esac
case $written_s in
    '' | *[!0-9]* | 0?* | ?????????????*) fail_open 'verdict has no valid time' ;;
esac
[ "$boot_id" = "$this_boot" ] || fail_open 'verdict is of another boot'
[ "$written_s" -le "$uptime_s" ] || fail_open 'verdict is from the future'
[ $((uptime_s - written_s)) -le "$stale_after_s" ] || fail_open 'verdict is stale: is slurm-lifecycle-agent running?'

case $level/$gate in
    drain/yes) exit 1 ;;
    drain/no) ;;
    ok/* | warn/*)
        # A refusal of an earlier start of this job is history once the node is well again.
        if [ -n "$job_id" ] && [ -e "$run_dir/refused.$job_id" ]; then
            rm -f -- "$run_dir/refused.$job_id" 2>/dev/null
        fi
        ;;
    *) fail_open 'verdict has no known level' ;;
esac
exit 0
