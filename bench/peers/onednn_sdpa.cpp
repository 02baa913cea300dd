// oneDNN's bfloat16 attention, as its Graph API offers it: QK^T, scale, causal mask, softmax, PV,
// compiled as one partition. families/onednn.py builds this against an installation of oneDNN and
// calls it through the C functions below.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "oneapi/dnnl/dnnl_graph.hpp"

namespace {

using dnnl::graph::compiled_partition;
using dnnl::graph::graph;
using dnnl::graph::logical_tensor;
using dnnl::graph::op;
using dnnl::graph::partition;
using dnnl::graph::tensor;
using type = logical_tensor::data_type;
using layout = logical_tensor::layout_type;
using dims = logical_tensor::dims;

/// Ways to write the graph; which of them oneDNN fuses depends on its version.
struct Form {
  bool float_scores;     // scores between the two products in float32, else in bfloat16
  bool mask_of_indices;  // the causal mask compares indices, else it is a tensor that is added
};

/// Logical tensors and operations of one attention problem.
class Attention {
 public:
  Attention(std::int64_t batch, std::int64_t heads, std::int64_t seq_q, std::int64_t seq_k,
            std::int64_t head_dim, bool causal, std::int64_t copies, Form form)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const dims q_dims = {batch, heads, seq_q, head_dim};
    const dims k_dims = {batch, heads, seq_k, head_dim};
    const dims score_dims = {batch, heads, seq_q, seq_k};
    const logical_tensor q = named(type::bf16, q_dims);
    const logical_tensor k = named(type::bf16, k_dims);
    const logical_tensor v = named(type::bf16, k_dims);
    const type score_type = form.float_scores ? type::f32 : type::bf16;
    const logical_tensor scale = named(score_type, {1});
    const bool added = causal && !form.mask_of_indices;
    const logical_tensor hidden = named(score_type, added ? dims{batch, 1, seq_q, seq_k} : dims{1});
    const logical_tensor out = named(type::bf16, q_dims);

    graph attention(dnnl::engine::kind::cpu);
    logical_tensor scores = named(score_type, score_dims);
    op qk = operation(op::kind::MatMul, {q, k}, {scores});
    qk.set_attr<bool>(op::attr::transpose_b, true);
    attention.add_op(qk);
    const logical_tensor scaled = named(score_type, score_dims);
    attention.add_op(operation(op::kind::Multiply, {scores, scale}, {scaled}));
    scores = scaled;
    if (added) {
      const logical_tensor masked = named(score_type, score_dims);
      attention.add_op(operation(op::kind::Add, {scores, hidden}, {masked}));
      scores = masked;
    } else if (causal) {
      scores = add_mask_of_indices(attention, scores, hidden, score_dims);
    }
    const logical_tensor probabilities = named(type::bf16, score_dims);
    op softmax = operation(op::kind::SoftMax, {scores}, {probabilities});
    softmax.set_attr<std::int64_t>(op::attr::axis, -1);
    if (form.mask_of_indices) softmax.set_attr<std::string>(op::attr::mode, "inf_as_zero");
    attention.add_op(softmax);
    attention.add_op(operation(op::kind::MatMul, {probabilities, v}, {out}));
    attention.finalize();

    const std::vector<partition> partitions = attention.get_partitions();
    if (partitions.size() != 1 || !partitions.front().is_supported()) {
      throw std::runtime_error("oneDNN cuts the attention graph into " +
                               std::to_string(partitions.size()) + " partitions");
    }
    const std::vector<logical_tensor> inputs = partitions.front().get_input_ports();
    compiled_ = partitions.front().compile(inputs, {out}, engine_);

    q_ = tensor(q, engine_);
    out_ = tensor(out, engine_);
    tensor scale_tensor(scale, engine_);
    tensor hidden_tensor(hidden, engine_);
    put(scale_tensor, 0, 1.0F / std::sqrt(static_cast<float>(head_dim)), score_type);
    // What is added is finite: a plain softmax then makes 0 of it.
    const float lowest = added ? -1e30F : -std::numeric_limits<float>::infinity();
    // A mask for each batch entry: oneDNN 3.6 and 3.13 compute something else when one is
    // broadcast.
    for (std::int64_t row = 0; row < (added ? batch * seq_q : 1); ++row) {
      for (std::int64_t j = 0; j < (added ? seq_k : 1); ++j) {
        const bool visible = added && j <= row % seq_q + seq_k - seq_q;
        put(hidden_tensor, row * seq_k + j, visible ? 0.0F : lowest, score_type);
      }
    }
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      k_.emplace_back(k, engine_);
      v_.emplace_back(v, engine_);
      std::vector<tensor>& arguments = arguments_.emplace_back();
      for (const logical_tensor& input : inputs) {
        for (const tensor& candidate : {q_, k_.back(), v_.back(), scale_tensor, hidden_tensor}) {
          if (candidate.get_logical_tensor().get_id() == input.get_id()) {
            arguments.push_back(candidate);
          }
        }
      }
      std::vector<const_dnnl_graph_tensor_t>& handles = handles_.emplace_back();
      for (const tensor& argument : arguments) handles.push_back(argument.get());
    }
  }

  void set(const void* q, const void* k, const void* v) {
    std::memcpy(q_.get_data_handle(), q, q_.get_logical_tensor().get_mem_size());
    for (std::size_t copy = 0; copy < k_.size(); ++copy) {
      std::memcpy(k_[copy].get_data_handle(), k, k_[copy].get_logical_tensor().get_mem_size());
      std::memcpy(v_[copy].get_data_handle(), v, v_[copy].get_logical_tensor().get_mem_size());
    }
  }

  void run() {
    // The C function: the C++ one needs the newest library.
    std::vector<const_dnnl_graph_tensor_t>& inputs = handles_[next_];
    const_dnnl_graph_tensor_t out = out_.get();
    dnnl::error::wrap_c_api(
        dnnl_graph_compiled_partition_execute(compiled_.get(), stream_.get(), inputs.size(),
                                              inputs.data(), 1, &out),
        "could not execute the attention graph");
    stream_.wait();
    next_ = (next_ + 1) % handles_.size();
  }

  void get(void* out) const {
    std::memcpy(out, out_.get_data_handle(), out_.get_logical_tensor().get_mem_size());
  }

 private:
  /// Bfloat16 keeps the upper half (to nearest; the values here are no NaN).
  static void put(tensor& destination, std::int64_t index, float value, type data_type) {
    void* data = destination.get_data_handle();
    if (data_type == type::f32) {
      static_cast<float*>(data)[index] = value;
    } else {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      static_cast<std::uint16_t*>(data)[index] =
          static_cast<std::uint16_t>((bits + (std::isinf(value) ? 0 : 0x8000)) >> 16);
    }
  }

  logical_tensor named(type data_type, const dims& extents) {
    return {next_id_++, data_type, extents, layout::strided};
  }

  op operation(op::kind kind, const std::vector<logical_tensor>& inputs,
               const std::vector<logical_tensor>& outputs) {
    const std::size_t id = next_id_++;
    return {id, kind, inputs, outputs, "op" + std::to_string(id)};
  }

  /// scores where key <= query, else `hidden`.
  logical_tensor add_mask_of_indices(graph& attention, const logical_tensor& scores,
                                     const logical_tensor& hidden, const dims& extents) {
    const logical_tensor row = named(type::s32, extents);
    const logical_tensor column = named(type::s32, extents);
    const logical_tensor visible = named(type::boolean, extents);
    const logical_tensor masked = named(scores.get_data_type(), extents);
    op rows = operation(op::kind::GenIndex, {scores}, {row});
    rows.set_attr<std::int64_t>(op::attr::axis, -2);
    op columns = operation(op::kind::GenIndex, {scores}, {column});
    columns.set_attr<std::int64_t>(op::attr::axis, -1);
    attention.add_op(rows);
    attention.add_op(columns);
    attention.add_op(operation(op::kind::GreaterEqual, {row, column}, {visible}));
    attention.add_op(operation(op::kind::Select, {visible, scores, hidden}, {masked}));
    return masked;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  compiled_partition compiled_;
  tensor q_, out_;
  std::vector<tensor> k_, v_;
  std::vector<std::vector<tensor>> arguments_;  // of each copy
  std::vector<std::vector<const_dnnl_graph_tensor_t>> handles_;
  std::size_t next_ = 0;
  std::size_t next_id_ = 0;
};

thread_local std::string last_error;

}  // namespace

extern "C" {

/// Null, and a message from peer_onednn_error(), where oneDNN does not offer it.
Attention* peer_onednn_create(std::int64_t batch, std::int64_t heads, std::int64_t seq_q,
                              std::int64_t seq_k, std::int64_t head_dim, int causal,
                              std::int64_t copies, int float_scores, int mask_of_indices) try {
  const Form form = {float_scores != 0, mask_of_indices != 0};
  return std::make_unique<Attention>(batch, heads, seq_q, seq_k, head_dim, causal != 0, copies,
                                     form)
      .release();
} catch (const std::exception& error) {
  last_error = error.what();
  return nullptr;
}

const char* peer_onednn_error() { return last_error.c_str(); }

const char* peer_onednn_version() {
  static const std::string version = [] {
    const dnnl_version_t* v = dnnl_version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
           std::to_string(v->patch);
  }();
  return version.c_str();
}

void peer_onednn_set(Attention* attention, const void* q, const void* k, const void* v) {
  attention->set(q, k, v);
}

/// 0, or 1 and a message.
int peer_onednn_run(Attention* attention) try {
  attention->run();
  return 0;
} catch (const std::exception& error) {
  last_error = error.what();
  return 1;
}

void peer_onednn_get(const Attention* attention, void* out) { attention->get(out); }

void peer_onednn_destroy(Attention* attention) { std::unique_ptr<Attention>(attention).reset(); }

}  // extern "C"
