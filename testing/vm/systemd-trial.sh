#!/usr/bin/env bash
# Tries a worker and a server as services of systemd, with cgroups of version 2, in a virtual machine.
#
#   usage: systemd-trial.sh WORKDIR [OUTLAST]
#
# WORKDIR is that of make-image.sh. OUTLAST is the program; default: target/debug/outlast. Prints a line
# for each fact, and exits with 0 if all of them are as they should be.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
[[ $# -ge 1 ]] || { printf 'usage: systemd-trial.sh WORKDIR [OUTLAST]\n' >&2; exit 2; }
program=${2:-$here/../../target/debug/outlast}
shared=$(mktemp -d)
trap 'rm -rf "$shared"' EXIT
cp "$program" "$shared/outlast"
cp -r "$here/../../deploy" "$shared/deploy"
cp "$here/guest/systemd.sh" "$shared/systemd.sh"
"$here/run-in-vm.sh" "$1" "$shared" systemd.sh "${TIMEOUT:-900}"
