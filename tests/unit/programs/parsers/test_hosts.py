"""Tools that ask or load a host: network, storage, ports, buses, clocks, the kernel."""

from __future__ import annotations

import pytest

from tests.support.cases.rows import rows
from tests.support.cases.tool_samples import figures, printed, value, whole, words
from workflows.programs.parsers.registry import PARSERS


def test_iperf3_tells_both_sides_as_json_and_text() -> None:
    json = whole("iperf3", "3.19-written.json")
    assert value(json, "network_bandwidth", "sent") == pytest.approx(97.0473803364)
    assert value(json, "network_retransmits", "sent") == 3
    assert json.version == "3.19.1+"
    text = whole("iperf3", "3.16-text-written.txt")
    assert value(text, "network_bandwidth", "received") == 195
    assert value(text, "network_bandwidth", "stream 5 sent") == 97.9
    assert value(text, "network_retransmits", "sent") == 12
    assert "iperf Done" in whole("iperf3", "3.1-text.txt").unknown


def test_iperf3s_broken_documents_and_errors_are_unknown() -> None:
    assert whole("iperf3", "3.1-not-a-number.json").unknown == "the JSON is broken off or damaged"
    assert "unable to connect to server" in whole("iperf3", "3.17-error-written.json").unknown


def test_fio_tells_what_was_done_in_bytes() -> None:
    three = whole("fio", "3.28-nvme.json")
    job = "seqmixedread100write0_libaio_t1_qd64_bs128k"
    assert value(three, "storage_read_bandwidth", job) == 12.411965845
    assert not [one for one in three.readings if one.quantity == "storage_write_bandwidth"]
    assert value(whole("fio", "2.15-read.json"), "storage_read_bandwidth", "t2") == pytest.approx(0.157093888)
    terse = whole("fio", "3.28-terse-written.txt")
    assert value(terse, "storage_read_bandwidth", "seqread") == pytest.approx(1.073741824)
    assert value(terse, "storage_read_rate", "seqread") == 256
    assert whole("fio", "3.8-nothing-done.json").unknown == "no job has read or written anything"


def test_fios_percentiles_are_milliseconds_whatever_its_version() -> None:
    def told(name: str, figure: int) -> float | None:
        part = f'"total_ios": 1, "bw": 1, "iops": 1, "{name}": {{"percentile": {{"99.000000": {figure}}}}}'
        text = f'{{"fio version": "fio-3.1", "jobs": [{{"jobname": "j", "read": {{{part}}}}}]}}'
        return value(PARSERS["fio"](text), "storage_read_latency_p99", "j")

    assert told("clat_ns", 2_500_000) == 2.5
    assert told("clat", 2_500) == 2.5


def test_parallel_file_systems_are_told_in_gigabytes_and_operations() -> None:
    assert value(whole("ior", "3.4-daos.txt"), "storage_write_bandwidth") == pytest.approx(1.57253, abs=1e-5)
    assert figures(whole("mdtest", "3.4-daos.txt")) == [
        ("file_creation_rate", 14206.511, "1/s", ""),
        ("tree_creation_rate", 1869.791, "1/s", ""),
    ]
    assert value(whole("mdtest", "4.0-ranks-written.txt"), "file_stat_rate") == 65300.6


def test_ports_are_told_by_adapter_and_number() -> None:
    two = whole("ibstat", "mt4099-two-ports.txt")
    assert value(two, "nic_state", "mlx4_0/1") == 0
    assert value(two, "nic_state", "mlx4_0/2") == 1
    assert value(two, "nic_link_rate", "mlx4_0/2") == 56
    assert "a port's last line is missing" in two.unknown
    assert whole("ibstat", "mt4099-one-port.txt").unknown == ""
    verbose = whole("ibv-devinfo", "verbose-written.txt")
    assert value(verbose, "nic_link_rate", "mlx5_0/1") == 400
    assert value(verbose, "nic_physical_state", "mlx5_0/1") == 1
    assert ("nic_firmware", "28.39.1002", "ib0", "") in words(whole("ibv-devinfo", "connectx7-roce.txt"))
    for name in ("6.1-written.txt", "6.1-written.json"):
        assert value(whole("rdma-link", name), "nic_state", "mlx5_0/1") == 1
    assert ("nic_netdev", "ens2f1np1", "mlx5_3/1", "") in words(whole("rdma-link", "6.1-written.txt"))


def test_an_interface_tells_its_speed_or_that_it_has_none() -> None:
    assert value(whole("ethtool", "settings.txt"), "nic_link_rate", "enp0s3") == 1
    down = whole("ethtool", "settings-down-written.txt")
    assert figures(down) == [("nic_state", 0.0, "count", "eth1")]
    assert down.unknown == "eth1: its speed reads Unknown!"


def test_only_counters_of_trouble_are_kept_and_none_of_single_queues() -> None:
    kept = {one.quantity for one in whole("ethtool", "counters-mlx5.txt").readings}
    assert "nic_rx_discards_phy" in kept
    assert "nic_tx_pause_ctrl_phy" in kept
    assert not kept & {"nic_rx_bytes_phy", "nic_tx_packets_phy", "nic_rx0_buff_alloc_err", "nic_ch_events"}


def test_links_of_the_bus_are_told_with_and_without_devices() -> None:
    searched = whole("lspci", "mi350x-searched.txt")
    assert value(searched, "pcie_link_speed", "link 2") == 32
    assert value(searched, "pcie_fatal_error", "device 1") == 0
    devices = whole("lspci", "whole-written.txt")
    assert value(devices, "pcie_link_width", "17:00.0") == 8
    assert value(devices, "pcie_link_width_max", "17:00.0") == 16
    assert value(devices, "pcie_acs_enabled", "17:00.0") == 1
    assert ("pcie_link_state", "downgraded", "17:00.0", "") in words(devices)
    assert devices.unknown == "permission was denied"


def test_ping_tells_loss_also_where_nothing_came_back() -> None:
    parsed = whole("ping", "iputils-20.txt")
    assert value(parsed, "packet_loss", "127.0.0.1") == 0
    assert value(parsed, "round_trip", "127.0.0.1") == 0.047
    assert value(whole("ping", "iputils-unreachable-written.txt"), "packet_loss", "10.0.0.9") == 100


@rows("programs/parsers/hosts")
def test_a_ping_that_may_open_no_socket_says_what_to_do(said: str) -> None:
    parsed = PARSERS["ping"](said + "\n")
    assert parsed.readings == ()
    assert parsed.unknown.startswith(
        "ping may not open a socket here: let the pod carry the sysctl net.ipv4.ping_group"
    )


def test_a_firewall_that_drops_pings_is_no_missing_right() -> None:
    text = printed("ping", "iputils-unreachable-written.txt")
    parsed = PARSERS["ping"]("ping: sendmsg: Operation not permitted\n" + text)
    assert value(parsed, "packet_loss", "10.0.0.9") == 100
    assert "socket" not in parsed.unknown


def test_clocks_are_told_in_seconds_and_a_slow_one_is_below_zero() -> None:
    parsed = whole("chrony", "3-tracking.txt")
    assert value(parsed, "clock_skew") == 0.000260112
    assert value(parsed, "clock_synchronized") == 1
    assert value(whole("chrony", "4-dispersion.txt"), "clock_root_dispersion") == 3849.691650391
    slow = PARSERS["chrony"]("System time     : 0.25 seconds slow of NTP time\nLeap status     : Not synchronised\n")
    assert value(slow, "clock_skew") == -0.25
    assert value(slow, "clock_synchronized") == 0
    assert value(whole("timedatectl", "centos-7.txt"), "clock_synchronized") == 1
    assert value(whole("timedatectl", "show-written.txt"), "clock_synchronized") == 0
    assert value(PARSERS["timedatectl"]("       Offset: +1.5ms\n"), "clock_skew") == -0.0015


def test_the_kernels_lines_are_split_into_time_and_text() -> None:
    parsed = whole("kernel-log", "styles-written.txt")
    assert [(one.value, one.subject) for one in parsed.readings] == [
        (1686166336.0, "local clock"),
        (1686159136.123456, "unix"),
        (9876.54321, "since boot"),
    ]
    assert parsed.readings[2].word == "amdgpu 0000:03:00.0: amdgpu: ring timeout"
    assert parsed.unknown == "1 lines have no time"


def test_files_of_the_kernel_are_told_by_their_device() -> None:
    parsed = whole("sysfs", "written.txt")
    assert value(parsed, "link_downed", "mlx5_0/1") == 3
    assert value(parsed, "current_link_speed", "0000:05:00.0") == 32
    assert ("state", "4: ACTIVE", "mlx5_0/1", "") in words(parsed)
    assert value(parsed, "numa_balancing", "kernel") == 0
