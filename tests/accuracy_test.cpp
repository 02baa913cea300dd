// The accuracy suite: every row of verify/accuracy_rows.hpp on every kernel, at both precisions.
#include <algorithm>
#include <memory>
#include <string>
#include <tuple>

#include "support/kernel_param.hpp"
#include "support/run.hpp"
#include "verify/accuracy_rows.hpp"
#include "verify/float_attention.hpp"
#include "verify/measure.hpp"

namespace qattn::test {

namespace {

using verify::AccuracyRow;
using verify::HostProblem;
using verify::Result;

using RowAndKernel = std::tuple<const AccuracyRow*, KernelCase>;

// The problem of a row and its reference result. Kept for the next kernel: rows come in order.
struct RowData {
  const AccuracyRow* row = nullptr;
  HostProblem problem;
  Result reference;
};

const RowData& data_of(const AccuracyRow* row) {
  static std::unique_ptr<RowData> latest;
  if (latest == nullptr || latest->row != row) {
    latest.reset();  // a long row holds hundreds of megabytes: never two at once
    latest = std::make_unique<RowData>();
    latest->row = row;
    latest->problem = row->make(*row);
    latest->reference = verify::run_reference(latest->problem);
  }
  return *latest;
}

std::vector<const AccuracyRow*> all_rows() {
  std::vector<const AccuracyRow*> rows;
  for (const AccuracyRow& row : verify::accuracy_rows()) rows.push_back(&row);
  return rows;
}

std::string row_name(const testing::TestParamInfo<RowAndKernel>& info) {
  std::string name = std::get<0>(info.param)->name + "__" + std::get<1>(info.param).name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '.' || c == '-'; }, '_');
  return name;
}

// `data` with every query kTimes times in a row of the output, for one batch and a full mask.
RowData with_more_queries(const RowData& data) {
  constexpr std::int64_t kTimes = 3;
  const verify::Dimensions& old = data.problem.dimensions;
  RowData more = {data.row, data.problem, {}};
  more.problem.dimensions.seq_q = kTimes * old.seq_q;
  for (std::int64_t i = 1; i < kTimes; ++i) {
    more.problem.q.insert(more.problem.q.end(), data.problem.q.begin(), data.problem.q.end());
  }
  for (std::int64_t i = 0; i < kTimes; ++i) {
    const std::vector<float>& out = data.reference.out;
    more.reference.out.insert(more.reference.out.end(), out.begin(), out.end());
  }
  for (std::int64_t h = 0; h < old.heads_q; ++h) {
    const auto lse = data.reference.lse.begin() + h * old.seq_q;
    for (std::int64_t i = 0; i < kTimes; ++i) {
      more.reference.lse.insert(more.reference.lse.end(), lse, lse + old.seq_q);
    }
  }
  return more;
}

class Accuracy : public testing::TestWithParam<RowAndKernel> {
 protected:
  void SetUp() override {
    const KernelCase& kernel = std::get<1>(GetParam());
    const std::string reason = skip_reason(kernel);
    if (!reason.empty()) GTEST_SKIP() << kernel.name << ": " << reason;
  }

  // At both precisions, with the errors among the test's properties.
  static void check(const KernelCase& kernel, const RowData& data) {
    for (const Precision precision : {Precision::high, Precision::fast}) {
      RunSettings settings;
      settings.precision = precision;
      const Result result = run_guarded(kernel, data.problem, settings);
      expect_close(kernel, data.problem, result, data.reference, precision);
      const verify::Measure measure = verify::measure(data.problem, result, data.reference);
      const std::string name = precision == Precision::high ? "high" : "fast";
      RecordProperty(name + "_relative", std::to_string(measure.relative));
      RecordProperty(name + "_row", std::to_string(measure.row));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Rows, Accuracy,
                         testing::Combine(testing::ValuesIn(all_rows()),
                                          testing::ValuesIn(all_kernels())),
                         row_name);

TEST_P(Accuracy, WithinTheContract) {
  const auto& [row, kernel] = GetParam();
  if (kernel.is_reference()) {
    // Against the second implementation in float64, which shares no code with it.
    if (!row->quick) GTEST_SKIP() << "the reference's own check is made on the quick rows";
    const RowData& data = data_of(row);
    expect_close(kernel, data.problem, data.reference,
                 verify::float_attention(verify::dequantise(data.problem)), Precision::high);
    return;
  }
  check(kernel, data_of(row));
}

// The CUDA kernels for few queries, tiny and decode, take the rows as they are; with more queries
// the others do.
TEST_P(Accuracy, WithinTheContractAtManyQueries) {
  const auto& [row, kernel] = GetParam();
  if (kernel.name.rfind("cuda/", 0) != 0) GTEST_SKIP() << "no kernel of its own for few queries";
  const RowData& few = data_of(row);
  if (few.problem.mask.kind != Mask::Kind::full) GTEST_SKIP() << "the queries would see others";
  check(kernel, with_more_queries(few));
}

}  // namespace
}  // namespace qattn::test
