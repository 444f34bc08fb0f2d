#!/bin/bash
# Boots systemd on an overlay of this host's root, as PID 1 of namespaces of its own.
#
#   unshare --pid --mount --cgroup --ipc --uts --net --fork --kill-child boot.sh SCRATCH [FROM TO]...
#
# SCRATCH is an empty folder, on which a tmpfs is mounted that holds everything that is written. Each
# FROM is seen at TO. Mounts are private before anything else: systemd-tmpfiles empties /tmp.
set -euo pipefail
mount --make-rprivate /
scratch=$1
shift
mount -t tmpfs -o mode=755 scratch "$scratch"
root=$scratch/root
layers=0

# lay FROM TO: what is written in TO stays in the scratch.
lay() {
    local layer=$scratch/layer$((layers += 1))
    mkdir -p "$layer"/{upper,work} "$2"
    mount -t overlay -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" overlay "$2"
}

lay / "$root"
while [[ $# -gt 0 ]]; do
    lay "$1" "$root$2"
    shift 2
done
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
: >"$root/dev/console"
for folder in run tmp var/tmp var/log dev/shm; do
    mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"
done
chmod 755 "$root/run" "$root/var/log"
cat >"$root/etc/systemd/system/booted.target" <<'UNIT'
[Unit]
Requires=sysinit.target sockets.target
After=sysinit.target sockets.target
UNIT
cd "$root"
pivot_root . mnt
umount -l /mnt
# Credentials reach a service as mounts that another process makes; a container's manager sees to it.
mount --make-rshared /
exec env -i container=ringbatch PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=booted.target --log-target=journal --show-status=false
