#!/bin/sh
# Turns a new root file system into a test machine. mmdebstrap runs it as a customize hook with the folder as $1.
set -eu
root=$1

cat >"$root/etc/hostname" <<END
machine
END
cat >"$root/etc/hosts" <<END
127.0.0.1 localhost machine
END
cat >"$root/etc/fstab" <<END
/dev/vda / ext4 rw,noatime 0 0
END

# The addresses of qemu's user network never change, so a DHCP client would only cost time.
cat >"$root/etc/systemd/network/10-eth0.network" <<END
[Match]
Name=eth0
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
END
rm -f "$root/etc/resolv.conf"
cat >"$root/etc/resolv.conf" <<END
nameserver 10.0.2.3
END

# 'agent' has subordinate ids and may use sudo, 'plain' has neither.
chroot "$root" useradd -m -u 1000 -s /bin/bash agent
chroot "$root" useradd -m -u 1001 -s /bin/bash plain
sed -i /^plain:/d "$root/etc/subuid" "$root/etc/subgid"
echo "agent ALL=(ALL) NOPASSWD:ALL" >"$root/etc/sudoers.d/agent"

# Tests start the engines themselves, and nothing else may use the processor.
chroot "$root" systemctl enable -q systemd-networkd ssh
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    systemd-networkd-wait-online.service docker.service docker.socket containerd.service podman.socket podman.service \
    podman-restart.service podman-auto-update.timer podman-auto-update.service netavark-dhcp-proxy.socket getty@tty1.service; do
    chroot "$root" systemctl disable -q "$unit" 2>/dev/null || true
done
chroot "$root" systemctl set-default -q multi-user.target

# The tests of systemd install units and change the machine; they run only where this file says that they may.
touch "$root/etc/ripcord-test-machine"

# Only the drivers of the machine that qemu emulates: unpacking all others takes ten seconds without KVM.
sed -i 's/^MODULES=.*/MODULES=list/' "$root/etc/initramfs-tools/initramfs.conf"
printf 'virtio_pci\nvirtio_blk\next4\n' >>"$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u -k all
