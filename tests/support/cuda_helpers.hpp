// Streams, graphs and pinned memory for the tests of the CUDA path. Failing CUDA calls fail the
// test.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "support/kernel_param.hpp"

namespace qattn::test {

/// Adds a failure that names the CUDA error.
inline void expect_cuda(cudaError_t error, const char* what) {
  EXPECT_EQ(error, cudaSuccess) << what << ": " << cudaGetErrorString(error);
}

/// A stream that does not synchronise with the legacy default stream.
class Stream {
 public:
  Stream() { expect_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  Device device(int ordinal = 0) const { return Device::cuda(ordinal, stream_); }
  void wait() const { expect_cuda(cudaStreamSynchronize(stream_), "synchronise"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An instantiated graph.
class Graph {
 public:
  /// Ends the capture that was begun on `stream`.
  explicit Graph(const Stream& stream) {
    expect_cuda(cudaStreamEndCapture(stream.get(), &graph_), "end of capture");
    expect_cuda(cudaGraphInstantiate(&executable_, graph_, 0), "instantiate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void replay(const Stream& stream) {
    expect_cuda(cudaGraphLaunch(executable_, stream.get()), "replay");
    stream.wait();
  }
  /// Nodes of all kinds.
  std::size_t node_count() const {
    std::size_t count = 0;
    expect_cuda(cudaGraphGetNodes(graph_, nullptr, &count), "nodes");
    return count;
  }
  /// Names of the kernels in it, as the linker knows them.
  std::vector<std::string> kernel_names() const {
    std::size_t count = 0;
    expect_cuda(cudaGraphGetNodes(graph_, nullptr, &count), "nodes");
    std::vector<cudaGraphNode_t> nodes(count);
    expect_cuda(cudaGraphGetNodes(graph_, nodes.data(), &count), "nodes");
    std::vector<std::string> names;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      cudaGraphNodeGetType(node, &type);
      if (type != cudaGraphNodeTypeKernel) continue;
      cudaKernelNodeParams params{};
      expect_cuda(cudaGraphKernelNodeGetParams(node, &params), "kernel node");
      const char* name = nullptr;
      expect_cuda(cudaFuncGetName(&name, params.func), "kernel name");
      if (name != nullptr) names.emplace_back(name);
    }
    return names;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// Page-locked host memory.
template <typename T>
class Pinned {
 public:
  explicit Pinned(const std::vector<T>& values) : size_(values.size()) {
    void* memory = nullptr;
    expect_cuda(cudaMallocHost(&memory, size_ * sizeof(T)), "pinned memory");
    data_ = static_cast<T*>(memory);
    std::copy(values.begin(), values.end(), data_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { cudaFreeHost(data_); }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> values() const { return {data_, data_ + size_}; }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

}  // namespace qattn::test
