"""llama.cpp's own HTTP server, from the ``xllamacpp`` wheel, as a program: ``llama_server.py MODEL NAME PORT CONTEXT
[plain] [embedding | ranking]``.

The wheel runs the server inside the process that imports it, on threads that take signals their own way; so they are
blocked before the import, and waited for. NAME is what ``/v1/models`` says; two slots share CONTEXT. With ``plain`` it
is as without ``--jinja``: the model's own template is not used, and tools are refused. With ``embedding`` it serves
embeddings too, with ``ranking`` it ranks texts and does nothing else.
"""

from __future__ import annotations

import os
import signal
import sys

STOP = {signal.SIGTERM, signal.SIGINT}


def serve(model: str, name: str, port: int, context: int, *, plain: bool, embedding: bool, ranking: bool) -> None:
    """Serve until told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = model
    p.model_alias = {name}
    p.hostnames, p.port, p.n_threads_http = ["127.0.0.1"], port, 8
    p.n_ctx, p.n_parallel, p.n_batch, p.n_ubatch = context, 2, 256, 256
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.sampling.temp, p.sampling.seed = 0.0, 1
    p.use_jinja = not plain
    if embedding:
        p.embedding, p.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    if ranking:
        p.embedding, p.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    p.endpoint_slots = p.offline = True
    p.warmup = p.ui = p.fit_params = False
    server = xllamacpp.Server(p)
    signal.sigwait(STOP)
    del server  # kept until here: the server lives as long as its object
    os._exit(0)


if __name__ == "__main__":
    serve(
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
        **{word: word in sys.argv[5:] for word in ("plain", "embedding", "ranking")},
    )
