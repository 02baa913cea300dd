// The inputs of a problem in the memory of a device.
#pragma once

#include <cstdint>

#include "verify/host_problem.hpp"

namespace qattn::test {

/// Copies of q, k, v and their scales, and views of them.
class DeviceInputs {
 public:
  DeviceInputs(const Device& device, const verify::HostProblem& problem)
      : q_view_(problem.q_view()),
        k_view_(problem.k_view()),
        v_view_(problem.v_view()),
        q_(device, problem.q.data(), problem.q.size()),
        k_(device, problem.k.data(), problem.k.size()),
        v_(device, problem.v.data(), problem.v.size()),
        q_scale_(device, problem.q_scale.data(), problem.q_scale.size()),
        k_scale_(device, problem.k_scale.data(), problem.k_scale.size()),
        v_scale_(device, problem.v_scale.data(), problem.v_scale.size()) {}

  Int8Tensor q() const { return move(q_view_, q_, q_scale_); }
  Int8Tensor k() const { return move(k_view_, k_, k_scale_); }
  Int8Tensor v() const { return move(v_view_, v_, v_scale_); }
  /// The copy of q, for writing to.
  Buffer<std::int8_t>& q_data() { return q_; }

 private:
  static Int8Tensor move(Int8Tensor view, const Buffer<std::int8_t>& data,
                         const Buffer<float>& scale) {
    view.data = data.data();
    view.scale.data = scale.data();
    return view;
  }

  Int8Tensor q_view_, k_view_, v_view_;
  Buffer<std::int8_t> q_, k_, v_;
  Buffer<float> q_scale_, k_scale_, v_scale_;
};

}  // namespace qattn::test
