"""What a measurement ran on, and where measurements are kept."""
import datetime
import json
import os
import platform
from pathlib import Path

import torch

from agentrl.sweeps import this_machine

RESULTS = Path(__file__).with_name('results.json')


def cpu_name():
    """The processor as Linux names it, else what Python knows."""
    try:
        lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    except OSError:
        lines = []
    names = [line.split(':')[1].strip() for line in lines if 'model name' in line]
    return names[0] if names else platform.processor()


def describe():
    """The machine: what results depend on, and what times depend on."""
    return {**this_machine(), 'processor': cpu_name(), 'cores': os.cpu_count(),
            'threads': torch.get_num_threads()}


def save(name, measured):
    """Put one study into results.json, with its date and machine; the others stay."""
    known = json.loads(RESULTS.read_text('utf-8')) if RESULTS.exists() else {}
    known[name] = {'date': datetime.date.today().isoformat(), 'machine': describe(),
                   **measured}
    text = json.dumps(known, indent=1, sort_keys=True)
    RESULTS.write_text(text + '\n', encoding='utf-8')
