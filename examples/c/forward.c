/* Attention from C: quantises float tensors, runs on the best device, says which kernel ran. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "qattn/qattn.h"

enum { kBatch = 2, kSeq = 72, kHeads = 4, kHeadDim = 32 };
enum { kElements = kBatch * kSeq * kHeads * kHeadDim };

/* An int8 tensor with its scales in the memory of a device. */
typedef struct {
  int8_t* data;
  float* scale;
  qattn_tensor view;
} tensor;

static void check(qattn_status status, const char* what) {
  if (status == QATTN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, qattn_status_name(status), qattn_last_error_message());
  exit(1);
}

/* Quantises a wave of the given frequency into memory of the device. */
static tensor make_tensor(const qattn_device* device, double frequency) {
  static float wave[kElements];
  tensor result;
  void *floats, *data, *scale;
  qattn_float_tensor input;
  qattn_quantized quantized;
  for (int i = 0; i < kElements; ++i) wave[i] = (float)sin(frequency * i);

  check(qattn_allocate(device, sizeof wave, &floats), "allocating");
  check(qattn_allocate(device, kElements, &data), "allocating");
  check(qattn_allocate(device, kHeads * sizeof(float), &scale), "allocating");
  check(qattn_copy_to_device(device, floats, wave, sizeof wave), "copying");
  check(qattn_float_tensor_init(&input, sizeof input, floats, QATTN_FLOAT32, kBatch, kSeq, kHeads,
                                kHeadDim),
        "describing the input");
  check(qattn_quantized_init(&quantized, sizeof quantized, data, scale, kBatch, kSeq, kHeads,
                             kHeadDim),
        "describing the result");
  check(qattn_quantize(device, &input, &quantized, NULL), "quantising");
  check(qattn_free(device, floats), "freeing");

  result.data = data;
  result.scale = scale;
  check(qattn_tensor_init(&result.view, sizeof result.view, data, kBatch, kSeq, kHeads, kHeadDim,
                          scale),
        "describing a tensor");
  return result;
}

static void free_tensor(const qattn_device* device, tensor* t) {
  check(qattn_free(device, t->data), "freeing");
  check(qattn_free(device, t->scale), "freeing");
}

int main(void) {
  static float result[kElements];
  qattn_device device;
  qattn_output out;
  qattn_options options;
  qattn_explanation* explanation;
  void* memory;
  char name[24];

  check(qattn_device_best(&device, sizeof device), "looking for a device");
  check(qattn_device_name(&device, name, sizeof name), "naming the device");
  tensor q = make_tensor(&device, 0.11);
  tensor k = make_tensor(&device, 0.23);
  tensor v = make_tensor(&device, 0.05);
  check(qattn_allocate(&device, sizeof result, &memory), "allocating");
  check(qattn_output_init(&out, sizeof out, memory, kBatch, kSeq, kHeads, kHeadDim),
        "describing the output");
  check(qattn_options_init(&options, sizeof options), "filling in the options");
  options.mask = QATTN_MASK_CAUSAL;

  check(qattn_forward(&device, &q.view, &k.view, &v.view, &out, &options), "attention");
  check(qattn_copy_to_host(&device, result, memory, sizeof result), "copying");
  check(qattn_explain(&device, &q.view, &k.view, &v.view, &out, &options, &explanation),
        "explaining");
  printf("qattn %s on %s, kernel %s\n", qattn_version(), name,
         qattn_explanation_kernel(explanation));
  /* The first query sees the first key alone: its output is the first value. */
  printf("out[0][0][0][1] = %.4f, v[0][0][0][1] = %.4f\n", (double)result[1], sin(0.05));

  qattn_explanation_free(explanation);
  check(qattn_free(&device, memory), "freeing");
  free_tensor(&device, &q);
  free_tensor(&device, &k);
  free_tensor(&device, &v);
  return fabs(result[1] - sin(0.05)) < 0.01 ? 0 : 1;
}
