"""Names of older packages, which DeepSpeed before 0.14.4 imports and no program needs."""

import numpy
from torch.distributed.elastic.agent.server import api
from torch.distributed.elastic.utils.distributed import get_socket_with_port

vars(api).setdefault("_get_socket_with_port", get_socket_with_port)
vars(numpy).setdefault("BUFSIZE", 8192)
