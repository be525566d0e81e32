#!/usr/bin/env bash
# Builds a small Debian virtual machine for run-in-vm.sh: a root file system
# with systemd, its kernel, and its initial RAM disk.
#
#   usage: make-image.sh WORKDIR
#
# Leaves rootfs.ext4, vmlinuz and initrd.img in WORKDIR. Must run as root
# (no loop device and no mount of the image is needed). Settings, all optional,
# by environment:
#   SUITE           Debian release; default: the host's if it runs Debian, or
#                   stable, so that the guest's glibc suits the host's binaries
#   MIRROR          package mirror; default: that of mmdebstrap
#   EXTRA_PACKAGES  further packages to install, separated by commas
#   IMAGE_SIZE      size of the (sparse) file system; default: 4G
set -euo pipefail

die() {
    printf 'make-image: %s\n' "$*" >&2
    exit 1
}

[[ $# -eq 1 ]] || die 'usage: make-image.sh WORKDIR'
[[ $EUID -eq 0 ]] || die 'must run as root'
PATH=$PATH:/usr/sbin:/sbin
for tool in mmdebstrap mke2fs; do
    command -v "$tool" >/dev/null || die "$tool not found (Debian packages: mmdebstrap e2fsprogs)"
done

mkdir -p "$1"
workdir=$(realpath "$1")
build=$(mktemp -d "$workdir/build.XXXXXXXXXX")
trap 'rm -rf --one-file-system "$build"' EXIT
root=$build/root
overlay=$build/overlay

host_suite() {
    # shellcheck source=/dev/null
    (. /etc/os-release && [[ ${ID:-} == debian ]] && printf '%s' "${VERSION_CODENAME:-}") || true
}
suite=${SUITE:-$(host_suite)}
suite=${suite:-stable}

packages=(
    # The kernel is not the "cloud" flavour, since that one lacks 9p.
    linux-image-amd64 initramfs-tools udev
    systemd systemd-sysv dbus dbus-user-session libpam-systemd
    passwd procps util-linux iproute2 python3 curl ca-certificates
)
[[ -z ${EXTRA_PACKAGES:-} ]] || packages+=("$EXTRA_PACKAGES")

# Kernel modules which no virtual machine of ours needs.
excludes=()
for directory in sound drivers/{gpu,media,infiniband,isdn,staging,iio,hwmon,ata,scsi,edac,cpufreq,mtd,usb,mmc,bluetooth} \
    drivers/net/{wireless,ethernet,can,usb} net/{bluetooth,mac80211,wireless}; do
    excludes+=("--dpkgopt=path-exclude=/lib/modules/*/kernel/$directory/*")
done

# --- Files of the guest -------------------------------------------------------

put() { # put PATH: writes standard input to PATH of the guest
    mkdir -p "$overlay/$(dirname "$1")"
    cat >"$overlay/$1"
    chmod 644 "$overlay/$1"
}

# Only what finds the root file system: a small initial RAM disk boots faster.
put etc/initramfs-tools/conf.d/vm <<<$'MODULES=list\nCOMPRESS=gzip\nBUSYBOX=n'
put usr/share/initramfs-tools/modules.d/vm <<<$'virtio_pci\nvirtio_blk\next4'
# The kernel makes /dev/vda by itself: udev would only take time there.
put etc/initramfs-tools/hooks/zz-no-udev <<'END'
#!/bin/sh
[ "${1:-}" != prereqs ] || exit 0
rm -f "$DESTDIR"/scripts/init-*/udev "$DESTDIR"/usr/bin/udevadm "$DESTDIR"/bin/udevadm
END
chmod 755 "$overlay/etc/initramfs-tools/hooks/zz-no-udev"
put etc/modules-load.d/vm.conf <<<$'9pnet_virtio\nvirtio_console\nvirtio_rng'
put etc/hostname <<<vm
put etc/hosts <<<$'127.0.0.1 localhost vm\n::1 localhost'
put etc/fstab <<'END'
/dev/vda  /                ext4  defaults  0 0
shared    /shared          9p    trans=virtio,version=9p2000.L,msize=524288,cache=mmap  0 0
control   /run/run-in-vm   9p    trans=virtio,version=9p2000.L,cache=none               0 0
END

# The script's output gets a terminal of its own, hvc0: messages of the kernel
# and of systemd go to ttyS0 and do not mix with it.
put etc/systemd/system/run-script.service <<'END'
[Unit]
Description=Run the test script, then power off
After=multi-user.target dev-hvc0.device
Wants=dev-hvc0.device
RequiresMountsFor=/shared /run/run-in-vm

[Service]
Type=exec
ExecStart=/usr/local/sbin/run-script
# Whatever has become of it, do not let the machine linger.
ExecStopPost=/usr/bin/systemctl poweroff --force --force
StandardInput=null
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/hvc0
WorkingDirectory=/shared
Environment=HOME=/root USER=root LOGNAME=root SHELL=/bin/bash LANG=C.UTF-8 TERM=dumb
TasksMax=infinity
END
put usr/local/sbin/run-script <<'END'
#!/bin/bash
# Runs the script which the host names, records its exit code, and powers off.
control=/run/run-in-vm
stty raw -echo <&1
IFS= read -r script <"$control/script"
systemctl is-system-running --wait >/dev/null
"/shared/$script"
code=$?
stty -echo <&1 # waits until all output is out
printf '%s\n' "$code" >"$control/exit-code"
sync
systemctl poweroff --force --force &>/dev/null
END
chmod 755 "$overlay/usr/local/sbin/run-script"

mkdir -p "$overlay"/{shared,etc/systemd/system-generators,etc/systemd/system/multi-user.target.wants}
ln -s ../run-script.service "$overlay/etc/systemd/system/multi-user.target.wants/"
# No login prompts: nobody is there to log in.
ln -s /dev/null "$overlay/etc/systemd/system-generators/systemd-getty-generator"
ln -s /dev/null "$overlay/etc/systemd/system/getty@.service"

# --- Build --------------------------------------------------------------------

printf 'make-image: installing Debian %s\n' "$suite" >&2
export overlay
# shellcheck disable=SC2016  # $overlay and $1 are for the hooks' shell
mmdebstrap --quiet --mode=root --variant=essential --format=directory \
    --aptopt='APT::Install-Recommends "false"' \
    "${excludes[@]}" \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --include="$(IFS=,; printf '%s' "${packages[*]}")" \
    --essential-hook='cp -r --no-dereference --preserve=mode,links "$overlay/." "$1/"' \
    --customize-hook='chroot "$1" useradd --create-home --shell /bin/bash tester' \
    "$suite" "$root" ${MIRROR:+"$MIRROR"}

# A machine ID, lest every boot be a first boot, which takes longer.
tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"

kernels=("$root"/boot/vmlinuz-*)
initrds=("$root"/boot/initrd.img-*)
[[ ${#kernels[@]} -eq 1 && -f ${kernels[0]} ]] || die 'expected one kernel in the guest'
[[ ${#initrds[@]} -eq 1 && -f ${initrds[0]} ]] || die 'expected one initial RAM disk in the guest'
mv "${kernels[0]}" "$build/vmlinuz"
mv "${initrds[0]}" "$build/initrd.img"

printf 'make-image: writing the file system\n' >&2
mke2fs -q -t ext4 -L root -m 0 -d "$root" "$build/rootfs.ext4" "${IMAGE_SIZE:-4G}" >&2

chmod 644 "$build"/{vmlinuz,initrd.img,rootfs.ext4}
mv "$build"/{vmlinuz,initrd.img,rootfs.ext4} "$workdir/"
printf 'make-image: done: %s\n' "$workdir/rootfs.ext4" >&2
