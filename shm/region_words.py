"""Words of the registry of clients' shared memory, see `ringbatch.shm.region_registry`."""

from typing import Final

from ringbatch.shm.descriptors import PAIR


class RegistryWords:
    """Registry of clients' memory; its writer is the frontend that holds its lock (registrar).

    word  name               stored by   how often  loaded by   how often  order
    ----  -----------------  ----------  ---------  ----------  ---------  -------
       0  STAMP              registrar   rarely     registrar   rarely     relaxed
    """

    STAMP: Final = 0
    SIZE: Final = PAIR


class RegionWords:
    """Record of the registry for one shared memory region of the protocol.

    STAMP is 0 while the record is empty. The text is the region's name and then its key, in UTF-8.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  STAMP              registrar   rarely     frontends   request    release
           1  OFFSET             registrar   rarely     frontends   rarely     STAMP
           2  BYTES              registrar   rarely     frontends   rarely     STAMP
           3  DEVICE             registrar   rarely     frontends   rarely     STAMP
           4  INODE              registrar   rarely     frontends   rarely     STAMP
           5  NAME_BYTES         registrar   rarely     frontends   rarely     STAMP
           6  KEY_BYTES          registrar   rarely     frontends   rarely     STAMP
           7  TEXT               registrar   rarely     frontends   rarely     STAMP
    """

    STAMP: Final = 0
    OFFSET: Final = 1
    BYTES: Final = 2
    DEVICE: Final = 3
    INODE: Final = 4
    NAME_BYTES: Final = 5
    KEY_BYTES: Final = 6
    TEXT: Final = 7
    SIZE: Final = 5 * PAIR
