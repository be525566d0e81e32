#!/usr/bin/env bash
# Runs a script as root in the virtual machine that make-image.sh has built,
# shows its output, and exits with its exit code.
#
#   usage: run-in-vm.sh WORKDIR SHARED_FOLDER SCRIPT [TIMEOUT]
#
# WORKDIR is that of make-image.sh. SHARED_FOLDER appears in the guest as
# /shared, for reading and writing. SCRIPT is the path of an executable file
# within SHARED_FOLDER. TIMEOUT is in seconds, 300 unless given. Changes of
# the guest outside /shared are lost; several runs may go on at once.
#
# Exits with 124 if the time is up and 125 if the machine cannot be started
# or ends without an exit code; a message then tells so. Environment, optional:
#   CONSOLE_LOG  file which gets the messages of the guest's kernel and systemd
#   ACCEL        "kvm" or "tcg"; default: KVM if it is of use, or else TCG
set -euo pipefail

die() {
    printf 'run-in-vm: %s\n' "$*" >&2
    exit 125
}

[[ $# -ge 3 && $# -le 4 ]] || die 'usage: run-in-vm.sh WORKDIR SHARED_FOLDER SCRIPT [TIMEOUT]'
workdir=$(realpath "$1") || die "no such folder: $1"
shared=$(realpath "$2") || die "no such folder: $2"
script=$3
timeout=${4:-300}

[[ $timeout =~ ^[1-9][0-9]*$ ]] || die "not a number of seconds: $timeout"
[[ -f $shared/$script && -x $shared/$script ]] || die "not an executable file: $shared/$script"
for file in vmlinuz initrd.img rootfs.ext4; do
    [[ -f $workdir/$file ]] || die "$workdir/$file is missing: run make-image.sh first"
done
command -v qemu-system-x86_64 >/dev/null || die 'qemu-system-x86_64 not found (Debian package: qemu-system-x86)'

# KVM only where the processor itself virtualizes: other kinds, such as kvm_pvm
# of some nested hosts, also offer /dev/kvm, but do not run an ordinary kernel.
accel=${ACCEL:-tcg}
if [[ -z ${ACCEL:-} && -w /dev/kvm && (-d /sys/module/kvm_intel || -d /sys/module/kvm_amd) ]]; then
    accel=kvm
fi
[[ $accel != tcg ]] || accel=tcg,thread=multi,tb-size=256

run=$(mktemp -d "$workdir/run.XXXXXXXXXX")
qemu='' reader=''
# shellcheck disable=SC2317  # reached by the trap
finish() {
    if [[ -n $qemu ]]; then # still running: we have been interrupted
        kill "$qemu" "$reader" 2>/dev/null || true
        wait || true
    fi
    if [[ -n ${CONSOLE_LOG:-} && -f $run/console ]]; then
        cp "$run/console" "$CONSOLE_LOG" || true
    fi
    rm -rf "$run" || true
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$run/control"
printf '%s\n' "$script" >"$run/control/script"
mkfifo "$run/output"

# A pipe of our own between QEMU and our standard output, as QEMU makes its
# end non-blocking.
cat "$run/output" &
reader=$!

comma() { printf '%s' "${1//,/,,}"; } # as QEMU wants commas in its options

TMPDIR=$run timeout --kill-after=5 "$timeout" \
    qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
    -machine pc -accel "$accel" -cpu max,la57=off,arch-capabilities=off -smp 2 -m 1024 -nic none \
    -kernel "$workdir/vmlinuz" -initrd "$workdir/initrd.img" \
    -append 'root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests fsck.mode=skip systemd.show_status=1' \
    -snapshot -drive "file=$(comma "$workdir/rootfs.ext4"),format=raw,if=virtio" \
    -fsdev "local,id=shared,security_model=none,path=$(comma "$shared")" \
    -device virtio-9p-pci,fsdev=shared,mount_tag=shared \
    -fsdev "local,id=control,security_model=none,path=$(comma "$run/control")" \
    -device virtio-9p-pci,fsdev=control,mount_tag=control \
    -chardev "file,id=console,path=$(comma "$run/console")" -serial chardev:console \
    -chardev stdio,id=output,signal=off \
    -device virtio-serial-pci -device virtconsole,chardev=output \
    -device virtio-rng-pci \
    </dev/null >"$run/output" 2>"$run/errors" &
qemu=$!

status=0
wait "$qemu" || status=$?
qemu=''
wait "$reader" || true

if [[ -s $run/control/exit-code ]]; then
    exit "$(<"$run/control/exit-code")"
fi
{
    cat "$run/errors"
    if [[ -f $run/console ]]; then
        printf 'run-in-vm: the last lines of the console:\n'
        tail -n 30 "$run/console"
    fi
} >&2
if [[ $status -eq 124 || $status -eq 137 ]]; then
    printf 'run-in-vm: not done after %s seconds\n' "$timeout" >&2
    exit 124
fi
die "the machine ended without an exit code (QEMU: $status)"
