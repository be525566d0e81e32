#!/usr/bin/env bash
# Tries Outlast on a PostgreSQL that Patroni, etcd and HAProxy keep available, all from Debian:
# jobs come and run while the primary changes. Run by hand; CI does not run it.
#
#   usage: trial.sh sync|async proxy|hosts EVENT...
#
# sync or async   Patroni's synchronous_mode: on or off
# proxy or hosts  servers reach the primary through HAProxy, or find it in a list of both hosts
# EVENT           what happens, in this order:
#   switchover      patronictl switchover
#   kill            kill -9 of the primary's Patroni and its postmaster; once jobs are taken again,
#                   that Patroni is started again and must become a standby
#   kill-behind     the same after the standby has got nothing for two seconds (async only)
#
# For instance:  trial.sh sync proxy switchover kill
#                trial.sh async proxy kill kill-behind
#
# Needs the Debian packages postgresql-15, patroni, python3-psycopg2, etcd-server, haproxy and curl. Installing
# them may start services, which are not used: the trial starts its own on free ports of 127.0.0.1, below
# one new folder in /tmp, as the user nobody if you are root, and ends each of them by its process id.
# Times of Patroni (ttl 30, loop_wait 10) and of HAProxy (inter 3s) are those of their documentation.
#
# Prints what happened, and exits with 0 if nothing acknowledged was lost without being named (with sync:
# nothing at all), no two runs of a job overlapped that must not, and all jobs ended. Takes two to five
# minutes. Environment, optional:
#   OUTLAST    the program; default: target/debug/outlast
#   PRODUCERS  programs that enqueue, each about nine jobs a second; default: 3
#   KEEP=1     keep the folder with all logs; it is kept after a failure, too
set -euo pipefail

here=$(dirname "$(realpath "$0")")

die() {
    printf 'trial: %s\n' "$*" >&2
    exit 2
}

say() {
    printf '%s %s\n' "$(date +%T.%1N)" "$*"
}

# ---- What is asked for

[[ $# -ge 3 ]] || die 'usage: trial.sh sync|async proxy|hosts EVENT...'
mode=$1 way=$2
shift 2
[[ $mode == sync || $mode == async ]] || die "neither sync nor async: $mode"
[[ $way == proxy || $way == hosts ]] || die "neither proxy nor hosts: $way"
for event in "$@"; do
    case $event in
    switchover | kill) ;;
    kill-behind) [[ $mode == async ]] || die 'a synchronous primary waits for its standby' ;;
    *) die "no such event: $event" ;;
    esac
done
program=$(realpath "${OUTLAST:-$here/../../target/debug/outlast}")
[[ -x $program ]] || die "no program: $program"
postgres=/usr/lib/postgresql/15/bin
[[ -x $postgres/initdb ]] || die "no PostgreSQL in $postgres"
for tool in patroni patronictl etcd haproxy curl python3; do
    command -v "$tool" >/dev/null || die "$tool is missing"
done

# ---- One folder, and no daemon as root

drop=()
if [[ $EUID -eq 0 ]]; then
    drop=(setpriv --reuid nobody --regid nogroup --clear-groups)
fi
dir=$(mktemp -d /tmp/patroni.XXXXXX)
[[ $dir == /tmp/patroni.?????? && -d $dir && ! -L $dir ]] || die "not a folder of ours: $dir"
chmod 0755 "${dir:?}"
mkdir "$dir/log" "$dir/etc"
# The daemons make all files of theirs in here, so nothing has to change its owner.
mkdir -m 0777 "$dir/run" "$dir/run/one" "$dir/run/two"
# A copy: a build may replace the program meanwhile.
cp "$program" "$dir/outlast"
cd "$dir/run"

declare -A pids=()

# start NAME PROGRAM...: starts a daemon; its process is PROGRAM itself.
start() {
    local name=$1
    shift
    "${drop[@]}" env HOME="$dir/run" "$@" </dev/null >>"$dir/log/$name" 2>&1 &
    pids[$name]=$!
}

# Whether a process is there and lives in our folder: process ids come round again.
is_ours() {
    local cwd
    cwd=$(readlink "/proc/$1/cwd" 2>/dev/null) || return 1
    [[ $cwd == "${dir:?}"/* ]]
}

# stop NAME [SECONDS]: ends a daemon, by force if it takes longer.
stop() {
    local pid=${pids[$1]:-} tries=$((${2:-20} * 10))
    [[ -n $pid ]] || return 0
    unset "pids[$1]"
    kill -TERM "$pid" 2>/dev/null || true
    while is_ours "$pid" && ((tries-- > 0)); do sleep 0.1; done
    if is_ours "$pid"; then
        say "$1 does not stop; killed"
        kill -KILL "$pid" 2>/dev/null || true
    fi
    wait "$pid" 2>/dev/null || true
}

# The postmaster of a node, if it runs.
postmaster() {
    local pid
    pid=$(head -n 1 "$dir/run/$1/data/postmaster.pid" 2>/dev/null) || return 1
    [[ $pid =~ ^[1-9][0-9]*$ ]] && is_ours "$pid" && printf '%s' "$pid"
}

done_well=''
# shellcheck disable=SC2317  # reached by the trap
finish() {
    local name node pid left=''
    trap - EXIT
    set +e
    [[ -n $done_well ]] || say 'ends early'
    for name in load w1 w2 s1 s2; do stop "$name" 40; done
    for name in one two; do stop "$name" 60; done
    for node in one two; do
        # A killed Patroni leaves its PostgreSQL running.
        if pid=$(postmaster "$node"); then kill -QUIT "$pid"; fi
    done
    for name in haproxy etcd; do stop "$name"; done
    sleep 1
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        if [[ $pid != "$$" && $pid != "$BASHPID" ]] && is_ours "$pid"; then left+=" $pid"; fi
    done
    [[ -z $left ]] || say "processes that still run:$left"
    cd /
    if [[ -n $done_well && -z $left && -z ${KEEP:-} && $dir == /tmp/patroni.?????? && ! -L $dir ]]; then
        rm -rf -- "${dir:?}"
    else
        say "logs are in $dir"
    fi
    [[ -n $done_well && -z $left ]] || exit 1
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# until_true SECONDS WHAT COMMAND...: waits until a command succeeds.
until_true() {
    local tries=$(($1 * 5)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if ((tries-- <= 0)); then
            say "waited in vain: $what"
            exit 1
        fi
        sleep 0.2
    done
}

# ---- Ports: below those that the system gives to connections, so that a dead daemon's stays free

read -r p_etcd p_peer p_one p_two r_one r_two p_proxy p_s1 p_s2 < <(python3 - <<'PORTS'
import random, socket
held = []
while len(held) < 9:
    one = socket.socket()
    try:
        one.bind(("127.0.0.1", random.randrange(21000, 30000)))
        held.append(one)
    except OSError:
        pass
print(*[one.getsockname()[1] for one in held])
PORTS
)
declare -A port=([one]=$p_one [two]=$p_two) rest=([one]=$r_one [two]=$r_two)

# ---- etcd, two Patronis, HAProxy

start etcd etcd --name trial --data-dir "$dir/run/etcd" --enable-v2=false \
    --listen-client-urls "http://127.0.0.1:$p_etcd" --advertise-client-urls "http://127.0.0.1:$p_etcd" \
    --listen-peer-urls "http://127.0.0.1:$p_peer" --initial-advertise-peer-urls "http://127.0.0.1:$p_peer" \
    --initial-cluster "trial=http://127.0.0.1:$p_peer"
until_true 30 'etcd answers' curl -fsS --max-time 2 "http://127.0.0.1:$p_etcd/health"

synchronous=false
[[ $mode == async ]] || synchronous=true
for node in one two; do
    cat >"$dir/etc/$node.yml" <<YAML
scope: trial
name: $node
etcd3: {host: "127.0.0.1:$p_etcd"}
restapi: {listen: "127.0.0.1:${rest[$node]}", connect_address: "127.0.0.1:${rest[$node]}"}
bootstrap:
  dcs:
    ttl: 30
    loop_wait: 10
    retry_timeout: 10
    maximum_lag_on_failover: 1048576
    synchronous_mode: $synchronous
    postgresql: {use_pg_rewind: true}
  initdb: [{encoding: UTF8}, {locale: C}]
postgresql:
  listen: "127.0.0.1:${port[$node]}"
  connect_address: "127.0.0.1:${port[$node]}"
  data_dir: "$dir/run/$node/data"
  bin_dir: "$postgres"
  pgpass: "$dir/run/$node/pgpass"
  parameters: {unix_socket_directories: "$dir/run/$node"}
  pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
  authentication:
    superuser: {username: postgres}
    replication: {username: replicator}
YAML
done

# As in Patroni's documentation.
cat >"$dir/etc/haproxy.cfg" <<CFG
global
    maxconn 1000
    log stderr format raw local0 notice
defaults
    log global
    mode tcp
    retries 2
    timeout client 30m
    timeout connect 4s
    timeout server 30m
    timeout check 5s
listen primary
    bind 127.0.0.1:$p_proxy
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 3s fall 3 rise 2 on-marked-down shutdown-sessions
    server one 127.0.0.1:$p_one maxconn 200 check port $r_one
    server two 127.0.0.1:$p_two maxconn 200 check port $r_two
CFG

# is NODE ROLE: whether a node's Patroni says so.
is() {
    curl -fso /dev/null --max-time 2 "http://127.0.0.1:${rest[$1]}/$2"
}

# ask NODE SQL
ask() {
    "$postgres/psql" -XAtq -h 127.0.0.1 -p "${port[$1]}" -U postgres -d postgres -c "$2"
}

leader() {
    local node
    for node in one two; do
        if is "$node" primary; then
            printf '%s' "$node"
            return
        fi
    done
    return 1
}

other() {
    if [[ $1 == one ]]; then printf two; else printf one; fi
}

# Whether the standby follows as it should: in step, and allowed to take over.
in_step() {
    local now
    now=$(leader) || return 1
    [[ $(ask "$now" "select count(*) from pg_stat_replication
        where state = 'streaming' and sync_state = '$mode' and application_name = '$(other "$now")'
        and pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) < 100000") == 1 ]] || return 1
    if [[ $mode == sync ]]; then is "$(other "$now")" sync; else is "$(other "$now")" replica; fi
}

start one patroni "$dir/etc/one.yml"
until_true 60 'the first node is primary' is one primary
start two patroni "$dir/etc/two.yml"
until_true 90 'the second node follows' in_step
start haproxy haproxy -db -f "$dir/etc/haproxy.cfg"
through_proxy=("$postgres/psql" -XAtq -h 127.0.0.1 -p "$p_proxy" -U postgres -d postgres)
# Until its first checks it takes both for good.
leads_to_primary() {
    [[ $("${through_proxy[@]}" -c 'select pg_is_in_recovery()') == f ]]
}
until_true 30 'HAProxy leads to the primary' leads_to_primary
sleep 6
until_true 30 'HAProxy leads to the primary' leads_to_primary
"${through_proxy[@]}" -c 'create role outlast login' -c 'create database outlast owner outlast'

# ---- Outlast: two servers, two workers, one action that says in a file that it runs

mkdir -p "$dir/packs/trial/actions"
cat >"$dir/packs/trial/pack.yaml" <<'YAML'
ref: trial
label: Trial
description: Jobs that leave a trace.
version: 1.0.0
YAML
cat >"$dir/packs/trial/actions/note.yaml" <<'YAML'
ref: trial.note
label: Note
description: Leaves a trace.
runner_type: shell
entry_point: note.sh
parameter_format: dotenv
parameters:
  ledger: {type: string, required: true}
  ticks: {type: integer, default: 0}
YAML
cat >"$dir/packs/trial/actions/note.sh" <<'SH'
#!/bin/sh
# Starts, says twice a second that it lives, ends.
eval "$(cat)"

# One line by one write, so that lines of many jobs never mix.
say() {
    read -r now _ </proc/uptime
    printf '%s %s %s %s\n' "$now" "$OUTLAST_JOB_ID" "$OUTLAST_EPOCH" "$1" >>"$ledger"
}

say start
while [ "$ticks" -gt 0 ]; do
    sleep 0.5
    say alive
    ticks=$((ticks - 1))
done
say end
SH
chmod 0755 "$dir/packs/trial/actions/note.sh"

if [[ $way == proxy ]]; then
    database=postgres://outlast@127.0.0.1:$p_proxy/outlast
else
    database=postgres://outlast@127.0.0.1:$p_one,127.0.0.1:$p_two/outlast
fi
servers=http://127.0.0.1:$p_s1,http://127.0.0.1:$p_s2
start s1 "$dir/outlast" --log-format json server --listen "127.0.0.1:$p_s1" --database "$database" \
    --packs "$dir/packs"
until_true 60 'the first server is ready' curl -fsS --max-time 2 "http://127.0.0.1:$p_s1/health/ready"
start s2 "$dir/outlast" --log-format json server --listen "127.0.0.1:$p_s2" --database "$database" \
    --packs "$dir/packs"
until_true 60 'the second server is ready' curl -fsS --max-time 2 "http://127.0.0.1:$p_s2/health/ready"
for worker in w1 w2; do
    mkdir -m 0777 "$dir/run/$worker"
    start "$worker" "$dir/outlast" --log-format json worker --server "$servers" --name "$worker" \
        --concurrency 20 --packs "$dir/packs" --work-dir "$dir/run/$worker"
done

# ---- Load, events, verdict

say "$mode, $way: $*"
say "$("$dir/outlast" --version); $("$postgres/postgres" --version); $(patroni --version);" \
    "etcd $(etcd --version | sed -n 's/^etcd Version: //p'); $(haproxy -v | sed -n 's/ .*//;1s/$//p;q')" \
    "$(haproxy -v | awk 'NR == 1 { print $3 }')"
acked=$dir/run/acked
start load python3 "$here/load.py" produce --servers "$servers" --folder "$dir/run" \
    --producers "${PRODUCERS:-3}" --patronis "one=http://127.0.0.1:$r_one,two=http://127.0.0.1:$r_two"

# Whether so many jobs more were acknowledged.
grown_to() {
    [[ $(wc -l <"$acked") -ge $1 ]]
}

# happens WHAT: notes when.
happens() {
    say "$1"
    printf '%s %s\n' "$(date +%s.%N)" "$1" >>"$dir/run/happened"
}

# Waits until another node is primary and jobs are taken.
back() {
    until_true 120 "$1 is primary" is "$1" primary
    until_true 60 'jobs are taken again' grown_to $(($(wc -l <"$acked") + 10))
    say "$1 is primary; jobs are taken"
}

until_true 30 'jobs are taken' grown_to 100
for event in "$@"; do
    until_true 120 'the standby follows' in_step
    sleep 5 # jobs flow; nothing is awaited
    old=$(leader)
    new=$(other "$old")
    case $event in
    switchover)
        happens "switchover from $old to $new"
        patronictl -c "$dir/etc/one.yml" switchover --leader "$old" --candidate "$new" --force trial \
            >"$dir/log/switchover" 2>&1
        back "$new"
        ;;
    kill | kill-behind)
        victims=("${pids[$old]}" "$(postmaster "$old")")
        if [[ $event == kill-behind ]]; then
            sender=$(ask "$old" 'select pid from pg_stat_replication')
            is_ours "$sender" || die 'the process that sends the log is not ours'
            kill -STOP "$sender"
            victims+=("$sender")
            sleep 2
        fi
        kill -KILL "${victims[@]}"
        wait "${pids[$old]}" 2>/dev/null || true # else the shell tells of it
        happens "$event of $old"
        unset "pids[$old]"
        back "$new"
        sleep 5
        happens "return of $old"
        start "$old" patroni "$dir/etc/$old.yml"
        until_true 120 'the former primary follows' in_step
        say "$old follows"
        ;;
    esac
done
sleep 5
: >"$dir/run/stop"
tries=60
while is_ours "${pids[load]}" && ((tries-- > 0)); do sleep 0.5; done
stop load
say 'no more jobs; waiting until all have ended'
if python3 "$here/load.py" judge --servers "$servers" --folder "$dir/run" --logs "$dir/log" \
    --mode "$mode"; then
    done_well=1
fi
