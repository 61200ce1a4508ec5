#pragma once  // curand_kernel.h has all that the kernels use
