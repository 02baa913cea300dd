#include "verify/measure.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/visible.hpp"

namespace qattn::verify {
namespace {

// One row of an output, (batch, query, head).
struct Row {
  std::int64_t b, i, h;
};

std::size_t row_begin(const Dimensions& d, const Row& row) {
  return static_cast<std::size_t>(((row.b * d.seq_q + row.i) * d.heads_q + row.h) * d.head_dim);
}

std::size_t lse_index(const Dimensions& d, const Row& row) {
  return static_cast<std::size_t>((row.b * d.heads_q + row.h) * d.seq_q + row.i);
}

std::string describe(const Dimensions& d, const Row& row, const std::string& what, float value,
                     float reference) {
  return what + " of (batch " + std::to_string(row.b) + ", query " + std::to_string(row.i) +
         ", head " + std::to_string(row.h) + ") of " + d.to_string() + " is " +
         std::to_string(value) + ", the reference " + std::to_string(reference);
}

// Sum over the row's entries, as far as the reference is finite, of error^2 and of reference^2.
struct Squares {
  double error = 0;
  double reference = 0;
};

Squares squares(const Dimensions& d, const Row& row, const std::vector<float>& out,
                const std::vector<float>& reference) {
  const std::size_t begin = row_begin(d, row);
  Squares sum;
  for (std::size_t at = begin; at < begin + static_cast<std::size_t>(d.head_dim); ++at) {
    if (!std::isfinite(reference[at])) continue;
    const double error = static_cast<double>(out[at]) - static_cast<double>(reference[at]);
    sum.error += error * error;
    sum.reference += static_cast<double>(reference[at]) * static_cast<double>(reference[at]);
  }
  return sum;
}

// Square root of error / norm, both sums of squares. An error where nothing may be is infinite, and
// so is one that is not a number: a comparison with NaN would let it pass.
double ratio(double error, double norm) {
  if (error == 0) return 0;
  const double value = std::sqrt(error / norm);
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

// norms[j] = sum of ||v_scale * v_t||^2 over t < j, for one (batch, kv head).
std::vector<double> value_norms(const HostProblem& problem, std::int64_t b, std::int64_t h_kv) {
  const Dimensions& d = problem.dimensions;
  const double scale = problem.v_scale[static_cast<std::size_t>(h_kv)];
  std::vector<double> norms = {0};
  for (std::int64_t j = 0; j < d.seq_k; ++j) {
    const auto begin =
        static_cast<std::size_t>(((b * d.seq_k + j) * d.heads_kv + h_kv) * d.head_dim);
    std::int64_t sum = 0;
    for (std::size_t at = begin; at < begin + static_cast<std::size_t>(d.head_dim); ++at) {
      sum += std::int64_t{problem.v[at]} * problem.v[at];
    }
    norms.push_back(norms.back() + scale * scale * static_cast<double>(sum));
  }
  return norms;
}

std::string find_fault(const Dimensions& d, const Row& row, std::int64_t visible,
                       const Result& result, const Result& reference) {
  const std::size_t begin = row_begin(d, row);
  for (std::int64_t c = 0; c < d.head_dim; ++c) {
    const std::size_t at = begin + static_cast<std::size_t>(c);
    const float value = result.out[at];
    const bool lost = std::isfinite(reference.out[at]) && !std::isfinite(value);
    if (lost || (visible == 0 && value != 0)) {
      return describe(d, row, "channel " + std::to_string(c), value, reference.out[at]);
    }
  }
  const std::size_t at = lse_index(d, row);
  const float lse = result.lse[at];
  const float expected = reference.lse[at];
  const bool nothing = expected == -std::numeric_limits<float>::infinity();
  if ((nothing && lse != expected) || (std::isfinite(expected) && !std::isfinite(lse))) {
    return describe(d, row, "lse", lse, expected);
  }
  return {};
}

double lse_error(const std::vector<float>& lse, const std::vector<float>& reference) {
  double worst = 0;
  for (std::size_t at = 0; at < reference.size(); ++at) {
    if (!std::isfinite(reference[at])) continue;
    const double expected = reference[at];
    const double error = std::abs(lse[at] - expected) / std::max(1.0, std::abs(expected));
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

void check_sizes(const HostProblem& problem, const Result& result) {
  if (result.out.size() != static_cast<std::size_t>(problem.out_size()) ||
      result.lse.size() != static_cast<std::size_t>(problem.lse_size())) {
    throw Error(ErrorCode::invalid_argument,
                "measure: a result has the wrong size for " + problem.dimensions.to_string());
  }
}

}  // namespace

double relative_error(const Dimensions& d, const std::vector<float>& out,
                      const std::vector<float>& reference) {
  double worst = 0;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t h = 0; h < d.heads_q; ++h) {
      Squares head;
      for (std::int64_t i = 0; i < d.seq_q; ++i) {
        const Squares row = squares(d, {b, i, h}, out, reference);
        head.error += row.error;
        head.reference += row.reference;
      }
      worst = std::max(worst, ratio(head.error, head.reference));
    }
  }
  return worst;
}

Measure measure(const HostProblem& problem, const Result& result, const Result& reference) {
  check_sizes(problem, result);
  check_sizes(problem, reference);
  const Dimensions& d = problem.dimensions;
  Measure measure;
  measure.relative = relative_error(d, result.out, reference.out);
  measure.lse = lse_error(result.lse, reference.lse);
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t h = 0; h < d.heads_q; ++h) {
      const std::vector<double> norms = value_norms(problem, b, h * d.heads_kv / d.heads_q);
      for (std::int64_t i = 0; i < d.seq_q; ++i) {
        const Row row{b, i, h};
        const std::int64_t visible = visible_keys(d, problem.mask, i);
        const double mean =
            visible == 0 ? 0
                         : norms[static_cast<std::size_t>(visible)] / static_cast<double>(visible);
        const double error = squares(d, row, result.out, reference.out).error;
        measure.row = std::max(measure.row, ratio(error, 16 * mean));
        if (measure.fault.empty()) {
          measure.fault = find_fault(d, row, visible, result, reference);
        }
      }
    }
  }
  return measure;
}

std::string first_not_finite(const HostProblem& problem, const Result& result,
                             const Result& reference) {
  check_sizes(problem, result);
  check_sizes(problem, reference);
  const Dimensions& d = problem.dimensions;
  for (std::int64_t b = 0; b < d.batch; ++b) {
    for (std::int64_t i = 0; i < d.seq_q; ++i) {
      for (std::int64_t h = 0; h < d.heads_q; ++h) {
        const Row row{b, i, h};
        for (std::int64_t c = 0; c < d.head_dim; ++c) {
          const std::size_t at = row_begin(d, row) + static_cast<std::size_t>(c);
          if (!std::isfinite(result.out[at]) || !std::isfinite(reference.out[at])) {
            return describe(d, row, "channel " + std::to_string(c), result.out[at],
                            reference.out[at]);
          }
        }
        if (visible_keys(d, problem.mask, i) == 0) continue;  // its lse is -infinity
        const std::size_t at = lse_index(d, row);
        if (!std::isfinite(result.lse[at]) || !std::isfinite(reference.lse[at])) {
          return describe(d, row, "lse", result.lse[at], reference.lse[at]);
        }
      }
    }
  }
  return {};
}

double error_bound(Precision precision) { return precision == Precision::high ? 5e-4 : 1.5e-2; }

double lse_bound(Precision precision) { return error_bound(precision); }

bool passes(const Measure& measure, Precision precision) {
  const double bound = error_bound(precision);
  return measure.fault.empty() && measure.relative <= bound && measure.row <= bound &&
         measure.lse <= lse_bound(precision);
}

}  // namespace qattn::verify
