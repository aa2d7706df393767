#!/bin/sh
# Slurm HealthCheckProgram: sees that the agent lives, and runs one round of checks in its place when it does not.
#
# slurmd ignores the exit status, starts a new run while an old one still hangs, gives no PATH, and kills the script
# (not its descendants in other groups) at 60 s. So: one run at a time, each child in a process group of its own with
# a deadline, and no waiting for a child that the kernel will not let die.
#
# Settings are read from the [healthcheck] section of the agent's configuration:
#   chain = /usr/sbin/nhc      the site's own health check, run first
#   chain_timeout_s = 4        1 to 40
#   agent = /usr/bin/slurm-lifecycle agent
LC_ALL=C
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
run_dir=${SLC_RUN_DIR:-/run/slurm-lifecycle}
config=${SLC_AGENT_CONF:-/etc/slurm-lifecycle/agent.conf}
chain=
chain_timeout_s=4
agent='/usr/bin/slurm-lifecycle agent'
agent_timeout_s=5
# The agent writes every 30 s. Half as much again is late enough to look, and early enough that checks run at the
# usual interval of 60 s keep the verdict younger than the 120 s that the prolog asks for.
alive_within_s=45
lock=$run_dir/healthcheck.lock

note() {
    { printf '%s\n' "$1" >"$run_dir/failopen.healthcheck"; } 2>/dev/null
}

trimmed() { # sets $trimmed to $1 without outer blanks
    trimmed=${1#"${1%%[! 	]*}"}
    trimmed=${trimmed%"${trimmed##*[! 	]}"}
}

read_config() {
    [ -f "$config" ] || return 0
    section=
    while read -r line || [ -n "$line" ]; do
        case $line in
            '#'* | ';'* | '') continue ;;
            '['*']') section=$line && continue ;;
        esac
        [ "$section" = '[healthcheck]' ] || continue
        trimmed "${line%%=*}" && key=$trimmed
        trimmed "${line#*=}"
        case $key in
            chain) chain=$trimmed ;;
            chain_timeout_s) chain_timeout_s=$trimmed ;;
            agent) agent=$trimmed ;;
        esac
    done 2>/dev/null <"$config"
    case $chain_timeout_s in
        [1-9] | [1-3][0-9] | 40) ;;
        *) note "healthcheck: chain_timeout_s must be 1 to 40 in $config" && chain_timeout_s=4 ;;
    esac
}

process_state() { # sets $state (empty when the process $1 is gone) and $started (its start time in ticks)
    state= started=
    { read -r stat_line </proc/"$1"/stat; } 2>/dev/null || return 0
    set -f
    # The name in parentheses may hold anything: the fields start behind the last one.
    set -- ${stat_line##*) }
    set +f
    state=$1 started=${20:-}
}

same_process_lives() { # is process $1 the one that started at $2?
    process_state "$1"
    case $state in '' | Z | X) return 1 ;; esac
    [ "$started" = "$2" ]
}

take_lock() {
    if mkdir "$lock" 2>/dev/null; then
        write_owner
        return 0
    fi
    owner_pid= owner_started= owner_boot=
    { read -r owner_pid owner_started owner_boot <"$lock/owner"; } 2>/dev/null
    case $owner_pid in
        '' | *[!0-9]*) # just made, or its maker died before it wrote: give it a moment
            sleep 1
            { read -r owner_pid owner_started owner_boot <"$lock/owner"; } 2>/dev/null
            ;;
    esac
    case $owner_pid in
        '' | *[!0-9]*) ;;
        *) [ "$owner_boot" = "$this_boot" ] && same_process_lives "$owner_pid" "$owner_started" && return 1 ;;
    esac
    # Renaming is atomic: of two runs that see the same stale lock one gets it. Looked at again after the move,
    # in case the other had already replaced it by its own.
    stale=$run_dir/healthcheck.stale.$$
    mv "$lock" "$stale" 2>/dev/null || return 1
    moved_pid=
    { read -r moved_pid rest <"$stale/owner"; } 2>/dev/null
    if [ "$moved_pid" != "$owner_pid" ]; then
        mv "$stale" "$lock" 2>/dev/null || rm -rf -- "$stale"
        return 1
    fi
    rm -rf -- "$stale"
    mkdir "$lock" 2>/dev/null || return 1
    write_owner
}

write_owner() {
    process_state "$$"
    printf '%s %s %s\n' "$$" "$started" "$this_boot" >"$lock/owner"
}

# bounded NAME SECONDS COMMAND...: runs it in a session of its own, output thrown away; afterwards nothing of its
# process group is left. A child in uninterruptible sleep cannot be killed: it is written down, and neither waited for
# nor started again while it lives.
bounded() {
    name=$1 limit_s=$2
    shift 2
    stuck_pid= stuck_started=
    { read -r stuck_pid stuck_started stuck_boot <"$run_dir/healthcheck.stuck.$name"; } 2>/dev/null
    if [ -n "$stuck_pid" ] && [ "$stuck_boot" = "$this_boot" ] && same_process_lives "$stuck_pid" "$stuck_started"; then
        note "healthcheck: $name of process $stuck_pid is still stuck in the kernel"
        return 1
    fi
    setsid "$@" </dev/null >/dev/null 2>&1 &
    child=$!
    tenths=$((limit_s * 10))
    while [ "$tenths" -gt 0 ]; do
        process_state "$child"
        case $state in '' | Z | X) break ;; esac
        sleep 0.1
        tenths=$((tenths - 1))
    done
    if [ "$tenths" -le 0 ]; then
        note "healthcheck: $name did not end within $limit_s s"
        kill -s TERM -- "-$child" 2>/dev/null
        sleep 0.2
    fi
    # Also what a child left behind after a good end; the group lives as long as one of its members.
    kill -s KILL -- "-$child" 2>/dev/null
    for pause in 1 2 3; do
        process_state "$child"
        case $state in '' | Z | X) break ;; esac
        sleep 0.1
    done
    case $state in
        '' | Z | X) wait "$child" 2>/dev/null ;;
        *)
            { printf '%s %s %s\n' "$child" "$started" "$this_boot" >"$run_dir/healthcheck.stuck.$name"; } 2>/dev/null
            note "healthcheck: $name of process $child is stuck in the kernel (state $state)"
            return 1
            ;;
    esac
}

agent_lives() {
    version= written_s= boot_id=
    { read -r version level written_s boot_id rest <"$run_dir/verdict"; } 2>/dev/null || return 1
    { read -r uptime_s rest </proc/uptime; } 2>/dev/null || return 1
    uptime_s=${uptime_s%%.*}
    case $version/$written_s in
        v1/ | v1/*[!0-9]* | v1/0?* | v1/?????????????*) return 1 ;;
        v1/*) ;;
        *) return 1 ;;
    esac
    [ "$boot_id" = "$this_boot" ] && [ "$written_s" -le "$uptime_s" ] &&
        [ $((uptime_s - written_s)) -le "$alive_within_s" ]
}

{ read -r this_boot </proc/sys/kernel/random/boot_id; } 2>/dev/null || exit 0
read_config
[ -z "$chain" ] && agent_lives && exit 0

[ -d "$run_dir" ] || mkdir -p "$run_dir" 2>/dev/null
take_lock || exit 0
trap 'rm -rf -- "$lock"' EXIT
trap 'exit 0' HUP INT TERM
# Split on blanks on purpose, without expansion: a command and its arguments.
set -f
[ -z "$chain" ] || bounded chain "$chain_timeout_s" $chain
agent_lives || bounded agent "$agent_timeout_s" $agent --config "$config" --once --budget-s 4
exit 0
