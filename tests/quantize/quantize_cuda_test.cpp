// quantize() on CUDA streams: asynchronous, capturable, host memory accepted.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "qattn/qattn.hpp"

namespace qattn::test {
namespace {

class QuantizeOnStream : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::best().kind() == Device::Kind::cpu) {
      GTEST_SKIP() << "needs a GPU: " << machine_info().cuda;
    }
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  // A tensor whose largest entries grow with `factor`.
  std::vector<float> values(float factor) const {
    std::vector<float> x(static_cast<std::size_t>(shape.seq * shape.heads * shape.head_dim));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = factor * (static_cast<float>(i * 7919 % 1009) - 504.0F);
    }
    return x;
  }
  struct Result {
    std::vector<std::int8_t> values;
    std::vector<float> scales;
    bool operator==(const Result&) const = default;
  };
  Result on_cpu(const std::vector<float>& x) const {
    Result result{std::vector<std::int8_t>(x.size()), std::vector<float>(4)};
    quantize(Device::cpu(), FloatTensor(x.data(), shape),
             QuantizedTensor(result.values.data(), shape, result.scales.data()));
    return result;
  }

  Shape shape{1, 50, 4, 64};
  cudaStream_t stream = nullptr;
};

// The first call of the process may be inside a capture: one head per block, then spread heads.
TEST_F(QuantizeOnStream, CanBeCapturedAndReplayedOnNewData) {
  const Device device = Device::cuda(0, stream);
  for (const std::int64_t seq : {std::int64_t{50}, std::int64_t{5000}}) {
    shape.seq = seq;
    const std::vector<float> first = values(1.0F);
    Buffer<float> x(device, first.data(), first.size());
    Buffer<std::int8_t> out(device, first.size());
    Buffer<float> scale(device, 4);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    quantize(device, FloatTensor(x.data(), shape),
             QuantizedTensor(out.data(), shape, scale.data()));
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (const float factor : {3.0F, 0.25F}) {
      const std::vector<float> next = values(factor);
      x.copy_from(next.data());
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      Result got{std::vector<std::int8_t>(next.size()), std::vector<float>(4)};
      out.copy_to(got.values.data());
      scale.copy_to(got.scales.data());
      EXPECT_EQ(got, on_cpu(next)) << seq << " x" << factor;
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}

TEST_F(QuantizeOnStream, AcceptsHostMemoryAndWaitsForTheStream) {
  const Device device = Device::cuda(0, stream);
  const std::vector<float> sent = values(2.0F);
  Buffer<float> on_gpu(device, sent.data(), sent.size());
  float* x = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&x), sizeof(float) * sent.size()), cudaSuccess);
  std::fill_n(x, sent.size(), 1.0F);
  ASSERT_EQ(cudaMemcpyAsync(x, on_gpu.data(), sizeof(float) * sent.size(), cudaMemcpyDeviceToHost,
                            stream),
            cudaSuccess);
  Result got{std::vector<std::int8_t>(sent.size()), std::vector<float>(4)};
  quantize(device, FloatTensor(x, shape),
           QuantizedTensor(got.values.data(), shape, got.scales.data()));
  EXPECT_EQ(got, on_cpu(sent));
  cudaFreeHost(x);
}

TEST_F(QuantizeOnStream, HostMemoryIsRefusedDuringCaptureWhichGoesOn) {
  const Device device = Device::cuda(0, stream);
  const std::vector<float> x = values(1.0F);
  std::vector<std::int8_t> out(x.size());
  std::vector<float> scale(4);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  try {
    quantize(device, FloatTensor(x.data(), shape),
             QuantizedTensor(out.data(), shape, scale.data()));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
}

TEST_F(QuantizeOnStream, MixedMemoryIsRefused) {
  const Device device = Device::cuda(0, stream);
  const std::vector<float> x = values(1.0F);
  Buffer<float> on_gpu(device, x.data(), x.size());
  std::vector<std::int8_t> out(x.size());
  std::vector<float> scale(4);
  const auto expect_refusal = [&](const Device& where, const char* name) {
    try {
      quantize(where, FloatTensor(on_gpu.data(), shape),
               QuantizedTensor(out.data(), shape, scale.data()));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(std::string(error.what()).rfind(name, 0), 0U) << error.what();
    }
  };
  expect_refusal(device, "out.data");
  expect_refusal(Device::cpu(), "input.data");
}

}  // namespace
}  // namespace qattn::test
