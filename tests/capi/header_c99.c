/* qattn.h as C99: what a C compiler makes of the structs. */
#include "qattn/qattn.h"

/* Sizes in the order of the header, for comparison with what C++ makes of them. */
void qattn_test_struct_sizes(size_t sizes[8]);
void qattn_test_struct_sizes(size_t sizes[8]) {
  sizes[0] = sizeof(qattn_device);
  sizes[1] = sizeof(qattn_tensor);
  sizes[2] = sizeof(qattn_output);
  sizes[3] = sizeof(qattn_options);
  sizes[4] = sizeof(qattn_float_tensor);
  sizes[5] = sizeof(qattn_quantized);
  sizes[6] = sizeof(qattn_quantize_options);
  sizes[7] = sizeof(qattn_cuda_device);
}
