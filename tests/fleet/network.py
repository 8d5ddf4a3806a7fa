#!/usr/bin/env python3
"""Hosts on one machine: network namespaces, joined by a switch that delays packets and loses some, as `tc qdisc add ... netem delay 50ms loss 1%` on
each host would. It is a process that carries packets between TUN devices, and so needs root, iproute2 and /dev/net/tun, but not the kernel's
netem, which some kernels lack. TCP in the hosts is the kernel's: what is lost is sent again."""
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

IFF_TUN, IFF_NO_PI, TUNSETIFF = 0x1, 0x1000, 0x400454CA


class Loopback:
    """Where no network is asked for: this machine."""
    address, prefix = "127.0.0.1", []


class Host:
    """`prefix` begins a command that is to run there."""

    def __init__(self, name, address):
        self.name, self.address, self.prefix = name, address, ["ip", "netns", "exec", name]


def run(command):
    result = subprocess.run(command.split(), capture_output=True, text=True)
    if result.returncode != 0:
        raise OSError(f"`{command}` says: {result.stderr.strip()}")


class Network:
    """A host for each name, and this machine itself."""

    def __init__(self, names, delay_s, loss, seed=1):
        tag = f"fleet{os.getpid()}"
        net, self.hosts, lines = f"10.213.{os.getpid() % 256}", {}, []
        try:
            for number, name in enumerate(["", *names], 1):
                lines.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
                device = f"{tag}-{number}"
                fcntl.ioctl(lines[-1], TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
                at = ""
                if name:
                    self.hosts[name] = Host(device, f"{net}.{number}")
                    run(f"ip netns add {device}")
                    run(f"ip link set {device} netns {device}")
                    run(f"ip -n {device} link set lo up")
                    at = f"-n {device} "
                run(f"ip {at}addr add {net}.{number}/24 dev {device}")
                run(f"ip {at}link set {device} up")
        except OSError as error:
            self.close()
            raise SystemExit(f"network namespaces and TUN devices are needed for delay and loss, by root and with iproute2: {error}") from error
        addresses = [f"{net}.{number}" for number in range(1, len(lines) + 1)]
        command = [sys.executable, __file__, str(delay_s), str(loss), str(seed), *(f"{line}={address}" for line, address in zip(lines, addresses))]
        self.switch = subprocess.Popen(command, pass_fds=lines, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in lines:
            os.close(line)

    def close(self):
        """Returns how many packets the switch carried, and how many it lost."""
        carried = lost = 0
        if hasattr(self, "switch"):
            carried, lost = map(int, self.switch.communicate()[0].split())
            del self.switch
        for host in self.hosts.values():
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)
        self.hosts = {}
        return carried, lost


def switch(delay_s, loss, seed, lines):
    """Carries packets until the standard input ends. `lines`: address (4 bytes) to TUN device."""
    chance, carried, lost, due = random.Random(seed), 0, 0, []
    poll = select.epoll()
    for line in [0, *lines.values()]:
        poll.register(line, select.EPOLLIN)
    while True:
        wait = due[0][0] - time.monotonic() if due else 60
        ready = [line for line, _ in poll.poll(max(0.0, wait))]
        if 0 in ready:
            return carried, lost
        now = time.monotonic()
        for line in ready:
            for packet in packets(line):
                target = lines.get(packet[16:20]) # of IPv4, the destination
                if packet[0] >> 4 != 4 or target is None:
                    continue
                carried += 1
                if chance.random() < loss:
                    lost += 1
                else:
                    heapq.heappush(due, (now + delay_s, carried, target, packet))
        while due and due[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(due)
            try:
                os.write(target, packet)
            except OSError:
                lost += 1 # its queue is full


def packets(line):
    for _ in range(64):
        try:
            yield os.read(line, 65536)
        except BlockingIOError:
            return


if __name__ == "__main__":
    pairs = (text.split("=") for text in sys.argv[4:])
    print(*switch(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), {socket.inet_aton(address): int(line) for line, address in pairs}))
