"""The descriptor of notes on devices; `ringbatch.shm.descriptors` has most others."""

from typing import Final

from ringbatch.shm.descriptors import PAIR


class DeviceNoteWords:
    """Note of a worker on its device, see `ringbatch.shm.device_notes`.

    TEXT goes up to a zero; it is empty without a device.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  TEXT               worker      rarely     status      rarely     relaxed
    """

    TEXT: Final = 0
    SIZE: Final = 4 * PAIR
