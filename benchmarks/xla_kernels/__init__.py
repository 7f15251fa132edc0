"""What `gpu_kernels.py` counts.

absent_gpu     compiles a function for a GPU that the machine lacks
optimized_hlo  reads the module that XLA has optimized
kernel_costs   the kernels of a module, and what each one costs
"""
