"""Firmware that each kind of machine lists, by id: the names are of captured trees, the versions made up.

A captured DGX H100 lists 66 rows, a GB200 tray 30, a Supermicro SYS-821GE-TNHR 106. On a Dell the id holds
the version, so that it changes with every update.
"""

from __future__ import annotations

from collections.abc import Mapping

_GPUS, _SWITCHES, _RETIMERS = range(1, 9), range(4), range(8)
_EROT = "00.02.0182.0000_n02"

_HGX: Mapping[str, str] = {
    "HGX_FW_BMC_0": "HGX-22.10-1-rc57",
    "HGX_FW_ERoT_BMC_0": _EROT,
    "HGX_FW_ERoT_FPGA_0": _EROT,
    **{f"HGX_FW_ERoT_GPU_SXM_{n}": _EROT for n in _GPUS},
    **{f"HGX_FW_ERoT_NVSwitch_{n}": _EROT for n in _SWITCHES},
    "HGX_FW_ERoT_PCIeSwitch_0": _EROT,
    "HGX_FW_FPGA_0": "2.53",
    **{f"HGX_FW_GPU_SXM_{n}": "96.00.89.00.01" for n in _GPUS},
    **{f"HGX_FW_NVSwitch_{n}": "96.10.55.00.01" for n in _SWITCHES},
    **{f"HGX_FW_PCIeRetimer_{n}": "2.7.20" for n in _RETIMERS},
    "HGX_FW_PCIeSwitch_0": "1.7.5F",
    **{f"HGX_InfoROM_GPU_SXM_{n}": "G520.0200.00.05" for n in _GPUS},
    **{f"HGX_InfoROM_NVSwitch_{n}": "5612.0002.00.01" for n in _SWITCHES},
}

FIRMWARE: Mapping[str, Mapping[str, str]] = {
    "generic": {"BMC": "1.10.0", "BIOS": "2.4.1", "CPLD": "1.0"},
    "dgx_h100": {
        "HostBMC_0": "23.11.21",
        "HostBIOS_0": "1.1.3",
        "EROT_BMC_0": "00.02.0150.0000_n00",
        "EROT_BIOS_0": "00.02.0150.0000_n00",
        "CPLDMB_0": "0.2.1.6",
        "CPLDMID_0": "0.2.1.1",
        **{f"PSU_{n}": "0202.0201.0203" for n in range(6)},
        "PCIeSwitch_0": "0.0.1",
        "PCIeSwitch_1": "1.0.1",
        "PCIeRetimer_0": "1.30.0",
        "PCIeRetimer_1": "1.30.0",
        **_HGX,
    },
    "gb200": {
        "FW_BMC_0": "GB200Nvl-24.12-8",
        **{f"FW_CPLD_{n}": "0x0a" for n in range(4)},
        "FW_ERoT_BMC_0": "01.03.0250.0000_n04",
        "CX7_0": "28.42.1000",
        "NIC_0": "32.42.1000",
        "NIC_1": "32.42.1000",
        "UEFI": "02.03.17",
        "HGX_FW_BMC_0": "GB200Nvl-24.12-8",
        "HGX_FW_CPLD_0": "0.1C",
        **{f"HGX_FW_CPU_{n}": "02.03.17" for n in range(2)},
        "HGX_FW_ERoT_BMC_0": "01.03.0250.0000_n04",
        **{f"HGX_FW_ERoT_CPU_{n}": "01.03.0250.0000_n04" for n in range(2)},
        **{f"HGX_FW_ERoT_FPGA_{n}": "01.03.0250.0000_n04" for n in range(2)},
        **{f"HGX_FW_FPGA_{n}": "1.20" for n in range(2)},
        **{f"HGX_FW_GPU_{n}": "97.00.60.00.0E" for n in range(4)},
        **{f"HGX_InfoROM_GPU_{n}": "G548.0201.00.05" for n in range(4)},
        "HGX_PCIeSwitchConfig_0": "01151024",
    },
    "supermicro_hgx": {
        "BMC": "01.02.03",
        "BIOS": "2.1.V1",
        "BIOS_ME": "6.1.4.5",
        "Staging_BMC": "",
        "Staging_BIOS": "",
        "Backup_BMC": "01.02.02",
        "Backup_BIOS": "2.0.V1",
        "Golden_BMC": "01.00.00",
        "Golden_BIOS": "1.0",
        "Golden_CPLD_Motherboard": "F2.30.01",
        **{f"Capsule_{name}": "" for name in ("BIOS", "MCU", "ME")},
        "CPLD_Motherboard": "F2.32.B1",
        "CPLD_Motherboard_2": "F2.32.B1",
        "CPLD_Backplane_1": "1B.03.08",
        "Fanboard_1_CPLD_1": "F3.16.01",
        "Fanboard_2_CPLD_1": "F3.16.01",
        "Switchboard_1_CPLD_1": "F2.15.03",
        "Switchboard_2_CPLD_2": "F2.15.03",
        "Switchboard_3_CPLD_2": "F2.15.03",
        **{f"GPU{n}": "96.00.89.00.01" for n in _GPUS},
        **{f"NIC{n}": "28.39.1002" for n in range(1, 11)},
        "NVMeController1": "03",
        **{f"NVMeSSDA1{n}": "GDC5602Q" for n in range(1, 9)},
        **{f"PowerSupply{n}": "1.3" for n in range(1, 9)},
        **_HGX,
    },
    "dell": {
        "Installed-25227-7.10.30.00__iDRAC.Embedded.1-1": "7.10.30.00",
        "Previous-25227-7.00.60.00__iDRAC.Embedded.1-1": "7.00.60.00",
        "Installed-159-2.1.5__BIOS.Setup.1-1": "2.1.5",
        "Current-159-2.1.5__BIOS.Setup.1-1": "2.1.5",
        "Previous-159-1.9.1__BIOS.Setup.1-1": "1.9.1",
        "Installed-27763-1.1.4__CPLD.Embedded.1": "1.1.4",
        "Installed-109673-7.2.3.1__TPM.Integrated.1-1": "7.2.3.1",
        **{f"Installed-108076-00.2A.2B__PSU.Slot.{n}": "00.2A.2B" for n in range(1, 7)},
        **{f"Installed-0-28.39.10.02__NIC.Slot.{n}-1": "28.39.10.02" for n in range(1, 9)},
        **{f"Installed-0-2.1.3__Disk.Bay.{n}:PCIeSSD.Slot.1-1": "2.1.3" for n in range(8)},
        **{f"Installed-0-96.00.89.00.01__Video.Slot.{n}-1": "96.00.89.00.01" for n in _GPUS},
    },
}
