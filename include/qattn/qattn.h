/* qattn from C, and from any language that can call C: INT8 attention on the fastest kernel of
 * whatever machine the program runs on. The C++ headers beside this one describe the computation;
 * every function here does what the C++ function of its name does.
 *
 * Structs begin with struct_size, the size of the struct that the caller was compiled with. Set
 * fields by an initialiser (qattn_options_init() and so on), which fills in the defaults, or by
 * hand. Later versions add fields at the end, and 0 in a new field means what the library did
 * before it had that field: a caller with a smaller struct gets the defaults, and one with a larger
 * struct is refused if it set anything that this library does not know. Sizes are multiples of 8.
 *
 * Functions return a qattn_status and let no exception out. Optional struct pointers say so; no
 * other may be null. Enumerators are passed as int32_t; a value that is not listed is refused.
 *
 * Functions are thread-safe and re-entrant. Nothing has been written when one fails for its
 * arguments.
 */
#ifndef QATTN_QATTN_H
#define QATTN_QATTN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QATTN_C_API __attribute__((visibility("default")))
#else
#define QATTN_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- status ----------------------------------------------------------------------------------- */

/** What a function returns: 0 for success, else what kind of thing went wrong. */
typedef int32_t qattn_status;
enum {
  QATTN_OK = 0,
  QATTN_INVALID_ARGUMENT = 1,   /**< an argument is outside its domain; nothing was written */
  QATTN_UNSUPPORTED = 2,        /**< valid, but no kernel of this device implements it (yet) */
  QATTN_UNKNOWN_KERNEL = 3,     /**< a forced kernel name that is not in the table */
  QATTN_KERNEL_UNUSABLE = 4,    /**< a forced kernel that machine or problem rules out */
  QATTN_DEVICE_UNAVAILABLE = 5, /**< the CUDA device cannot be used; the message says why */
  QATTN_OUT_OF_MEMORY = 6,      /**< host or device memory ran out; the library stays usable */
  QATTN_CUDA_ERROR = 7,         /**< the CUDA runtime or driver reported an error */
  QATTN_INTERNAL_ERROR = 8      /**< an exception of another kind, such as the executor's */
};

/** Message of the last function that failed on this thread; "" if none has. It names the argument,
 * what was given and what is allowed. Valid until the next failure on this thread; very long
 * messages are cut. */
QATTN_C_API const char* qattn_last_error_message(void);

/** "invalid_argument" and so on; "unknown" for other numbers. Static memory. */
QATTN_C_API const char* qattn_status_name(qattn_status status);

/** Version of the linked library, "major.minor.patch". Static memory. */
QATTN_C_API const char* qattn_version(void);

/* --- devices and their memory ----------------------------------------------------------------- */

enum { QATTN_DEVICE_CPU = 0, QATTN_DEVICE_CUDA = 1 };

/** Where attention runs (device.hpp). */
typedef struct qattn_device {
  size_t struct_size;
  int32_t kind;    /**< QATTN_DEVICE_CPU, QATTN_DEVICE_CUDA */
  int32_t ordinal; /**< CUDA device; 0 on the CPU */
  void* stream;    /**< cudaStream_t; null: the legacy default stream; null on the CPU */
} qattn_device;

/** This machine's CPU. */
QATTN_C_API qattn_status qattn_device_cpu(qattn_device* device, size_t struct_size);
/** A CUDA device and a stream. Whether it can be used shows when it is used. */
QATTN_C_API qattn_status qattn_device_cuda(qattn_device* device, size_t struct_size,
                                           int32_t ordinal, void* stream);
/** CUDA device 0 if a kernel of the library can run on it, else the CPU. */
QATTN_C_API qattn_status qattn_device_best(qattn_device* device, size_t struct_size);
/** The device in whose memory `pointer` lies. */
QATTN_C_API qattn_status qattn_device_for_data(qattn_device* device, size_t struct_size,
                                               const void* pointer);

/** Writes "cpu" or "cuda:N" with its final 0; 24 bytes always suffice. */
QATTN_C_API qattn_status qattn_device_name(const qattn_device* device, char* buffer, size_t bytes);

/** 256-byte aligned memory of the device; null for 0 bytes. Free it with qattn_free(). */
QATTN_C_API qattn_status qattn_allocate(const qattn_device* device, size_t bytes, void** pointer);
/** Frees what qattn_allocate() gave for the same device; null is fine. */
QATTN_C_API qattn_status qattn_free(const qattn_device* device, void* pointer);
/** Copies from host memory, after all work on the device's stream, and waits. */
QATTN_C_API qattn_status qattn_copy_to_device(const qattn_device* device, void* to,
                                              const void* from, size_t bytes);
/** Copies to host memory, after all work on the device's stream, and waits. */
QATTN_C_API qattn_status qattn_copy_to_host(const qattn_device* device, void* to, const void* from,
                                            size_t bytes);

/* --- tensors ---------------------------------------------------------------------------------- */

/** Element types. */
enum { QATTN_INT8 = 0, QATTN_UINT8 = 1, QATTN_FLOAT32 = 2, QATTN_FLOAT16 = 3, QATTN_BFLOAT16 = 4 };

/** Which entries of a tensor share one scale; the array that `scale` points to. */
enum {
  QATTN_PER_TENSOR = 0,     /**< scale[1] */
  QATTN_PER_HEAD = 1,       /**< scale[heads] */
  QATTN_PER_BATCH_HEAD = 2, /**< scale[batch][heads] */
  QATTN_PER_TOKEN = 3,      /**< scale[batch][seq][heads] */
  QATTN_PER_BLOCK = 4,      /**< scale[batch][ceil(seq / scale_block_tokens)][heads] */
  QATTN_PER_CHANNEL = 5     /**< scale[heads][head_dim] */
};

/** How sequences lie in a tensor (tensor.hpp). */
enum {
  QATTN_DENSE = 0,  /**< every sequence has shape[1] tokens */
  QATTN_PACKED = 1, /**< shape[0] = 1; sequence i is tokens [offsets[i], offsets[i + 1]) */
  QATTN_PAGED = 2   /**< shape[0] = pages, shape[1] = tokens per page; block_table names them */
};

/** View of an input tensor q, k or v: real value = scale * (integer - zero point). */
typedef struct qattn_tensor {
  size_t struct_size;
  const void* data;
  int64_t shape[4];           /**< batch, seq, heads, head_dim */
  int64_t strides[3];         /**< batch, seq, heads; in elements; head_dim is contiguous */
  const float* scale;         /**< in the memory space of the tensor */
  int32_t dtype;              /**< QATTN_INT8, QATTN_UINT8 */
  int32_t granularity;        /**< of the scales; QATTN_PER_HEAD by default */
  int64_t scale_block_tokens; /**< for QATTN_PER_BLOCK; else 0 */
  const uint8_t* zero_point;  /**< of a uint8 tensor, in the scales' granularity; else null */
  int32_t layout;             /**< QATTN_DENSE by default */
  int32_t reserved;           /**< 0 */
  int64_t sequences;          /**< number of sequences, packed and paged */
  const int32_t* offsets;     /**< [sequences + 1], packed */
  const int32_t* lengths;     /**< [sequences] tokens in use, paged */
  const int32_t* block_table; /**< [sequences][block_table_stride] page ids, paged */
  int64_t block_table_stride;
} qattn_tensor;

/** Defaults: a contiguous int8 tensor (batch, seq, heads, head_dim) with scale[heads]. */
QATTN_C_API qattn_status qattn_tensor_init(qattn_tensor* tensor, size_t struct_size,
                                           const int8_t* data, int64_t batch, int64_t seq,
                                           int64_t heads, int64_t head_dim, const float* scale);

/** View of the output (batch, seq_q, heads_q, head_dim of v). */
typedef struct qattn_output {
  size_t struct_size;
  void* data;
  int64_t shape[4];
  int64_t strides[3]; /**< in elements; distinct entries must not share memory */
  const float* scale; /**< of an int8 output, given by the caller; else null */
  int32_t dtype;      /**< QATTN_FLOAT32 by default; CUDA kernels: QATTN_FLOAT16, QATTN_BFLOAT16 */
  int32_t granularity;
  int64_t scale_block_tokens;
} qattn_output;

/** Defaults: a contiguous float32 tensor (batch, seq, heads, head_dim). */
QATTN_C_API qattn_status qattn_output_init(qattn_output* output, size_t struct_size, float* data,
                                           int64_t batch, int64_t seq, int64_t heads,
                                           int64_t head_dim);

/* --- attention -------------------------------------------------------------------------------- */

/** Which keys a query sees (mask.hpp). Query i sits at position p = i + (seq_k - seq_q). */
enum {
  QATTN_MASK_CAUSAL = 0,  /**< key j is visible iff j <= p */
  QATTN_MASK_FULL = 1,    /**< every key is visible */
  QATTN_MASK_WINDOW = 2,  /**< p - window_left <= j <= p + window_right; negative: unlimited */
  QATTN_MASK_BOOLEAN = 3, /**< visible iff the entry of mask_data (uint8) is true */
  QATTN_MASK_ADDITIVE = 4 /**< the entry of mask_data (float32) is added to the score */
};

/** How finely the softmax probabilities are quantised (options.hpp). */
enum { QATTN_PRECISION_HIGH = 0, QATTN_PRECISION_FAST = 1 };

/** Lets the CPU kernels run on the caller's threads: calls task(argument, i) exactly once for every
 * i in [0, tasks), on any threads and in any order, and returns when all calls have. */
typedef void (*qattn_executor)(void* context, int64_t tasks,
                               void (*task)(void* argument, int64_t index), void* argument);

/** Options of a call (options.hpp). The defaults are causal attention at high precision on all
 * threads, which is also what null pointers to options mean. */
typedef struct qattn_options {
  size_t struct_size;
  int32_t mask;          /**< QATTN_MASK_CAUSAL by default */
  int32_t precision;     /**< QATTN_PRECISION_HIGH by default */
  int64_t window_left;   /**< of QATTN_MASK_WINDOW; else as qattn_options_init() left both, or 0 */
  int64_t window_right;  /**< the same; a bound that the mask would ignore is refused */
  const void* mask_data; /**< (batch, heads_q, seq_q, seq_k), last dimension contiguous */
  int64_t mask_strides[3];   /**< batch, head, query; in elements; 0 broadcasts */
  int32_t has_softmax_scale; /**< 0: softmax_scale is 1 / sqrt(head_dim) */
  float softmax_scale;       /**< finite; read only if has_softmax_scale is not 0 */
  const char* kernel;        /**< forces a kernel by name ("cpu/avx2"); null or "": the best */
  float* lse;                /**< optional output (batch, heads_q, seq_q): log of the row sums */
  void* workspace;           /**< optional; see qattn_workspace_bytes() */
  size_t workspace_bytes;    /**< of workspace */
  int32_t threads;           /**< CPU threads at most; 0: what OpenMP would use */
  float soft_cap;            /**< S -> soft_cap * tanh(S / soft_cap) when positive; 0: off */
  qattn_executor executor;   /**< null: OpenMP */
  void* executor_context;    /**< handed to executor */
  const float* alibi_slopes; /**< [heads_q]; null: none */
  const float* sinks;        /**< [heads_q] logits of attention sinks; null: none */
} qattn_options;

/** Fills in the defaults. */
QATTN_C_API qattn_status qattn_options_init(qattn_options* options, size_t struct_size);

/** Attention over INT8 tensors: qattn::forward(). `options` may be null. */
QATTN_C_API qattn_status qattn_forward(const qattn_device* device, const qattn_tensor* q,
                                       const qattn_tensor* k, const qattn_tensor* v,
                                       const qattn_output* out, const qattn_options* options);

/** The plain case: contiguous (batch, seq, heads, head_dim) tensors, scales[heads] per head. */
QATTN_C_API qattn_status qattn_forward_contiguous(const qattn_device* device, const int8_t* q,
                                                  const int8_t* k, const int8_t* v,
                                                  const float* q_scale, const float* k_scale,
                                                  const float* v_scale, float* out, int64_t batch,
                                                  int64_t seq, int64_t heads, int64_t head_dim,
                                                  int32_t causal);

/** Bytes of options.workspace with which qattn_forward() allocates no device memory for these
 * arguments. Tensor data is not read and may be null. `options` may be null. */
QATTN_C_API qattn_status qattn_workspace_bytes(const qattn_device* device, const qattn_tensor* q,
                                               const qattn_tensor* k, const qattn_tensor* v,
                                               const qattn_output* out,
                                               const qattn_options* options, size_t* bytes);

/* --- quantisation ----------------------------------------------------------------------------- */

/** View of a floating-point tensor. */
typedef struct qattn_float_tensor {
  size_t struct_size;
  const void* data;   /**< aligned to its elements */
  int64_t shape[4];   /**< batch, seq, heads, head_dim */
  int64_t strides[3]; /**< batch, seq, heads; in elements */
  int32_t dtype;      /**< QATTN_FLOAT32 by default, QATTN_FLOAT16, QATTN_BFLOAT16 */
  int32_t reserved;   /**< 0 */
} qattn_float_tensor;

/** Defaults: a contiguous tensor (batch, seq, heads, head_dim) of `dtype`. */
QATTN_C_API qattn_status qattn_float_tensor_init(qattn_float_tensor* tensor, size_t struct_size,
                                                 const void* data, int32_t dtype, int64_t batch,
                                                 int64_t seq, int64_t heads, int64_t head_dim);

/** View of the int8 tensor that qattn_quantize() writes, with the extents of its input. */
typedef struct qattn_quantized {
  size_t struct_size;
  int8_t* data;
  int64_t strides[3]; /**< batch, seq, heads; in elements */
  float* scale;
  int32_t granularity; /**< QATTN_PER_HEAD by default */
  int32_t reserved;    /**< 0 */
  int64_t scale_block_tokens;
} qattn_quantized;

/** Defaults: a contiguous tensor (batch, seq, heads, head_dim) with scale[heads]. */
QATTN_C_API qattn_status qattn_quantized_init(qattn_quantized* out, size_t struct_size,
                                              int8_t* data, float* scale, int64_t batch,
                                              int64_t seq, int64_t heads, int64_t head_dim);

/** How qattn_quantize() runs on the CPU; fields as in qattn_options. */
typedef struct qattn_quantize_options {
  size_t struct_size;
  int32_t threads;
  int32_t reserved; /**< 0 */
  qattn_executor executor;
  void* executor_context;
} qattn_quantize_options;

/** Fills in the defaults. */
QATTN_C_API qattn_status qattn_quantize_options_init(qattn_quantize_options* options,
                                                     size_t struct_size);

/** Symmetric quantisation: qattn::quantize(). `options` may be null. */
QATTN_C_API qattn_status qattn_quantize(const qattn_device* device, const qattn_float_tensor* input,
                                        const qattn_quantized* out,
                                        const qattn_quantize_options* options);

/* --- introspection ---------------------------------------------------------------------------- */

/** A list of kernels. Strings and lists that the getters return live as long as what they came
 * from; getters give null or 0 for an index out of range. */
typedef struct qattn_kernel_list qattn_kernel_list;

/** The kernels for `device`, best first. Free the list with qattn_kernel_list_free(). */
QATTN_C_API qattn_status qattn_kernels(const qattn_device* device, qattn_kernel_list** list);
QATTN_C_API void qattn_kernel_list_free(qattn_kernel_list* list);
QATTN_C_API size_t qattn_kernel_list_size(const qattn_kernel_list* list);
/** "cpu/avx2": also the value of options.kernel and QATTN_KERNEL. */
QATTN_C_API const char* qattn_kernel_list_name(const qattn_kernel_list* list, size_t index);
/** 1 if it can run on this machine, else 0. */
QATTN_C_API int32_t qattn_kernel_list_usable(const qattn_kernel_list* list, size_t index);
/** Why it cannot run, or why it was passed over; "" if there is nothing to say. */
QATTN_C_API const char* qattn_kernel_list_reason(const qattn_kernel_list* list, size_t index);

/** Why a kernel was chosen. */
typedef struct qattn_explanation qattn_explanation;

/** Explains what qattn_forward() would do. Tensor data is not read and may be null. `options` may
 * be null. Free the explanation with qattn_explanation_free(). */
QATTN_C_API qattn_status qattn_explain(const qattn_device* device, const qattn_tensor* q,
                                       const qattn_tensor* k, const qattn_tensor* v,
                                       const qattn_output* out, const qattn_options* options,
                                       qattn_explanation** explanation);
QATTN_C_API void qattn_explanation_free(qattn_explanation* explanation);
/** The chosen kernel; "" if there is none. */
QATTN_C_API const char* qattn_explanation_kernel(const qattn_explanation* explanation);
/** What qattn_forward() would fail with; "" if it would run. */
QATTN_C_API const char* qattn_explanation_error(const qattn_explanation* explanation);
/** Several lines for a person to read. */
QATTN_C_API const char* qattn_explanation_text(const qattn_explanation* explanation);
/** The kernels passed over, with the reasons; part of the explanation, not to be freed. */
QATTN_C_API const qattn_kernel_list* qattn_explanation_passed_over(
    const qattn_explanation* explanation);

/** This machine as the library sees it. */
typedef struct qattn_machine qattn_machine;

/** Looks at the machine; initialises CUDA where a driver is present. Free the result with
 * qattn_machine_free(). */
QATTN_C_API qattn_status qattn_machine_info(qattn_machine** machine);
QATTN_C_API void qattn_machine_free(qattn_machine* machine);
/** Brand string of the processor. */
QATTN_C_API const char* qattn_machine_cpu(const qattn_machine* machine);
/** Features that kernels may need and CPU and OS grant. */
QATTN_C_API size_t qattn_machine_cpu_feature_count(const qattn_machine* machine);
QATTN_C_API const char* qattn_machine_cpu_feature(const qattn_machine* machine, size_t index);
/** Threads that OpenMP would use. */
QATTN_C_API int32_t qattn_machine_cpu_threads(const qattn_machine* machine);
/** "available", or why CUDA is not. */
QATTN_C_API const char* qattn_machine_cuda(const qattn_machine* machine);
/** 1000 * major + 10 * minor of the driver's CUDA version and of the linked runtime; 0: none. */
QATTN_C_API int32_t qattn_machine_cuda_driver(const qattn_machine* machine);
QATTN_C_API int32_t qattn_machine_cuda_runtime(const qattn_machine* machine);
QATTN_C_API size_t qattn_machine_cuda_device_count(const qattn_machine* machine);

/** A CUDA device of this machine. */
typedef struct qattn_cuda_device {
  size_t struct_size;
  int32_t ordinal;
  int32_t capability_major;
  int32_t capability_minor;
  int32_t multiprocessors;
  uint64_t memory_bytes;
  const char* name; /**< lives as long as the qattn_machine */
} qattn_cuda_device;

/** Fills in the fields of device `index`, as many as struct_size holds. */
QATTN_C_API qattn_status qattn_machine_cuda_device(const qattn_machine* machine, size_t index,
                                                   qattn_cuda_device* device, size_t struct_size);

#ifdef __cplusplus
}
#endif

#endif
