"""What `gpu_check.py` runs and reads.

variants         ways to train on GPUs, for timing and for comparing the weights
graph_audit      the operations, tensors and waits of a graph
placement        where a GPU would run the operations of a graph
killed_training  whether a killed and resumed training ends like an uninterrupted one
"""
