#!/usr/bin/env bash
# What systemd-trial.sh runs in the guest.
set -uo pipefail

failed=0
# fact NAME EXPECTED FOUND: both may be patterns of the shell.
fact() {
    # shellcheck disable=SC2053  # a pattern on purpose
    if [[ $3 == $2 ]]; then
        printf 'ok    %s: %s\n' "$1" "$3"
    else
        printf 'WRONG %s: expected %s, found %s\n' "$1" "$2" "$3"
        failed=1
    fi
}

# until_true SECONDS COMMAND...: whether it succeeds in time.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

json() { # json PATH: reads a document, and prints what is there
    python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."):
    value = value[int(name)] if name.isdigit() else value[name]
print(value if isinstance(value, str) else json.dumps(value))' "$1"
}

outlast() { command outlast "$@" --server http://127.0.0.1:8080; }

job() { # job ACTION FLAGS...: enqueues, and prints the id
    outlast run "$@" -o json | json id
}

status_of() { outlast jobs show "$1" -o json | json status; }
has_status() { [[ $(status_of "$1") == "$2" ]]; }
property() { systemctl show "$1" -p "$2" --value; }

printf 'systemd %s, kernel %s\n' "$(systemctl --version | sed -n '1s/^systemd //p')" "$(uname -r)"

# --- Installed as the units say --------------------------------------------------

install -m 0711 outlast /usr/local/bin/outlast
useradd --system --home-dir /var/lib/outlast --shell /usr/sbin/nologin outlast
useradd --system --home-dir /var/lib/outlast-worker --shell /usr/sbin/nologin outlast-worker
cp deploy/systemd/*.service /etc/systemd/system/
mkdir -p /etc/outlast /opt/packs/trial/actions
cat >/etc/outlast/outlast.yaml <<'END'
server: {listen: "127.0.0.1:8080", database: "sqlite:/var/lib/outlast/outlast.db", packs: [/opt/packs]}
END
cat >/etc/outlast/worker.yaml <<'END'
worker: {server: "http://127.0.0.1:8080", packs: [/opt/packs], name: trial, shutdown_timeout: 60s}
END
printf 'ref: trial\n' >/opt/packs/trial/pack.yaml
action() { # action NAME KEYS: the script is standard input
    printf 'runner_type: shell\nentry_point: %s.sh\n%s\n' "$1" "$2" >"/opt/packs/trial/actions/$1.yaml"
    cat >"/opt/packs/trial/actions/$1.sh"
}
action hog $'retry: 1\nresources: {memory: 64MiB}' <<<'dd if=/dev/zero of=/dev/null bs=300M count=50 status=none; echo done'
action alone $'retry: 1\noverlap: forbidden\nresources: {memory: 64MiB}' <<<'dd if=/dev/zero of=/dev/null bs=300M count=50 status=none; echo done'
action busy 'resources: {cpu: 0.2}' <<<'end=$(($(date +%s) + 4)); while [ "$(date +%s)" -lt $end ]; do :; done'
action bomb $'retry: 1\nresources: {processes: 8}' <<<'i=0; while [ $i -lt 40 ]; do sleep 30 & i=$((i+1)); done; wait'
action calm '' <<<'sleep "$(cat | sed "s/[^0-9]//g")"; echo calm'
# Shorter than the worker's own grace period: it has to ask for more time.
mkdir -p /etc/systemd/system/outlast-worker.service.d
printf '[Service]\nTimeoutStopSec=5\nWatchdogSec=20\n' >/etc/systemd/system/outlast-worker.service.d/trial.conf
systemctl daemon-reload
systemctl start outlast-server
fact 'the server is ready' active "$(property outlast-server ActiveState)"
systemctl start outlast-worker
fact 'the worker is ready' active "$(property outlast-worker ActiveState)"

# --- Resources ---------------------------------------------------------------------

of_worker() { outlast workers show trial -o json | json "$1"; }
fact 'memory is limited by' cgroup2 "$(of_worker about.limits.memory)"
fact 'cpu is limited by' cgroup2 "$(of_worker about.limits.cpu)"
fact 'processes are limited by' cgroup2 "$(of_worker about.limits.processes)"
group=/sys/fs/cgroup/system.slice/outlast-worker.service
fact 'the worker has moved into' outlast-worker "$(find $group -maxdepth 1 -name outlast-worker -printf '%f')"

calm=$(job trial.calm -p seconds=6)
hog=$(job trial.hog)
until_true 60 has_status "$hog" failed
attempts() { curl -s "http://127.0.0.1:8080/api/v1/executions/$1/attempts"; }
fact 'a job that takes too much fails with' oom_killed "$(attempts "$hog" | json data.0.error.type)"
fact 'its evidence is' oom "$(attempts "$hog" | json data.0.evidence_code)"
peak=$(attempts "$hog" | json data.0.peak_memory_bytes)
fact 'its peak is about its limit' 1 "$((peak > 50000000 && peak <= 67108864))"
alone=$(job trial.alone)
until_true 60 has_status "$alone" failed
fact 'one in a PID namespace of a user namespace fails with' oom_killed "$(attempts "$alone" | json data.0.error.type)"
busy=$(job trial.busy)
bomb=$(job trial.bomb)
until_true 60 has_status "$busy" completed
used=$(attempts "$busy" | json data.0.cpu_seconds)
fact 'a busy job of 0.2 cpu and 4 s used less than 1.5 s' 1 "$(python3 -c "print(int($used < 1.5))")"
until_true 60 has_status "$bomb" failed
fact 'a fork bomb' failed "$(status_of "$bomb")"
until_true 60 has_status "$calm" completed
fact 'a job beside them' completed "$(status_of "$calm")"
systemctl reload outlast-worker
fact 'a reload' 0 "$?"
fact 'restarts of the worker' 0 "$(property outlast-worker NRestarts)"
fact 'groups of attempts that are left' 0 "$(find $group -mindepth 1 -type d -name 'outlast-[0-9]*' | wc -l)"

# --- A stop that takes longer than TimeoutStopSec ------------------------------------

calm=$(job trial.calm -p seconds=15)
until_true 60 has_status "$calm" running
began=$SECONDS
systemctl stop outlast-worker
took=$((SECONDS - began))
fact 'a stop with TimeoutStopSec=5 waited for a job of 15 s' 1 "$((took >= 12 && took < 25))"
fact 'it ended with' success "$(property outlast-worker Result)"
fact 'the job' completed "$(status_of "$calm")"
fact 'its interruptions' 0 "$(outlast jobs show "$calm" -o json | json interruptions)"
fact 'the group is gone' 1 "$([[ -e $group ]] && echo 0 || echo 1)"

# --- Kills and a hung engine -----------------------------------------------------------

systemctl start outlast-worker
engine() { pgrep -P "$(property outlast-worker MainPID)" | head -n 1; }
calm=$(job trial.calm -p seconds=5)
until_true 60 has_status "$calm" running
kill -9 "$(engine)"
until_true 60 has_status "$calm" completed
fact 'a job whose engine was killed' completed "$(status_of "$calm")"
fact 'restarts of the unit after that' 0 "$(property outlast-worker NRestarts)"
calm=$(job trial.calm -p seconds=5)
until_true 60 has_status "$calm" running
kill -9 "$(property outlast-worker MainPID)"
until_true 60 has_status "$calm" completed
fact 'a job whose guardian was killed' completed "$(status_of "$calm")"
fact 'restarts of the unit after that' 1 "$(property outlast-worker NRestarts)"
fact 'its new worker limits memory by' cgroup2 "$(of_worker about.limits.memory)"
until_true 60 test "$(property outlast-worker ActiveState)" = active
kill -STOP "$(engine)"
restarted() { [[ $(property outlast-worker NRestarts) == 2 ]]; }
until_true 60 restarted
fact 'restarts of the unit after its engine was stopped for WatchdogSec' 2 "$(property outlast-worker NRestarts)"
until_true 60 test "$(property outlast-worker ActiveState)" = active
calm=$(job trial.calm -p seconds=1)
until_true 60 has_status "$calm" completed
fact 'a job after that' completed "$(status_of "$calm")"

# --- The server ----------------------------------------------------------------------------

kill -9 "$(property outlast-server MainPID)"
until_true 60 test "$(property outlast-server ActiveState)" = active
calm=$(job trial.calm -p seconds=1)
until_true 60 has_status "$calm" completed
fact 'a job after a killed server' completed "$(status_of "$calm")"
systemctl stop outlast-worker outlast-server
fact 'the server stopped with' success "$(property outlast-server Result)"
if ((failed)); then
    journalctl -u outlast-worker -u outlast-server --no-pager -o short-precise | tail -n 120
fi
exit $failed
