#include "support/kernel_param.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

namespace qattn::test {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

void append_kernels(const Device& device, std::vector<KernelCase>* cases) {
  for (const KernelStatus& status : kernels(device)) {
    cases->push_back({status.name, device, status.usable, status.reason});
  }
}

// The kernel in a test's full name "Kernels/Shapes.HeadDims/cpu_avx2"; null for other tests.
const KernelCase* kernel_of(const testing::TestInfo& info) {
  const std::string name = info.name();
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return nullptr;
  for (const KernelCase& kernel : all_kernels()) {
    std::string text = kernel.name;
    std::replace(text.begin(), text.end(), '/', '_');
    // Row tests append the kernel to the name of the row.
    const std::string tail = name.substr(slash + 1);
    if (tail == text ||
        (tail.size() > text.size() + 2 &&
         tail.compare(tail.size() - text.size() - 2, std::string::npos, "__" + text) == 0)) {
      return &kernel;
    }
  }
  return nullptr;
}

class KernelSummary : public testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const testing::TestInfo& info) override {
    const KernelCase* kernel = kernel_of(info);
    if (kernel == nullptr) return;
    const testing::TestResult& result = *info.result();
    Counts& counts = counts_[kernel->name];
    if (result.Skipped()) {
      ++counts.skipped;
    } else {
      ++(result.Failed() ? counts.failed : counts.passed);
    }
  }

  void OnTestProgramEnd(const testing::UnitTest& /*unit_test*/) override {
    if (counts_.empty()) return;
    std::cout << "Kernels of this run:\n";
    for (const KernelCase& kernel : all_kernels()) {
      const Counts counts = counts_[kernel.name];
      std::cout << "  " << kernel.name << ": ";
      const std::string reason = skip_reason(kernel);
      if (reason.empty()) {
        std::cout << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped
                  << " skipped\n";
      } else {
        std::cout << "skipped: " << reason << "\n";
      }
    }
    std::cout.flush();
  }

 private:
  struct Counts {
    int passed = 0;
    int failed = 0;
    int skipped = 0;
  };
  std::map<std::string, Counts> counts_;
};

}  // namespace

void PrintTo(const KernelCase& kernel, std::ostream* stream) { *stream << kernel.name; }

const std::vector<KernelCase>& all_kernels() {
  static const std::vector<KernelCase> cases = [] {
    std::vector<KernelCase> all;
    append_kernels(Device::cuda(), &all);
    append_kernels(Device::cpu(), &all);
    return all;
  }();
  return cases;
}

std::vector<KernelCase> cpu_tiers() {
  std::vector<KernelCase> tiers;
  for (const KernelCase& kernel : all_kernels()) {
    if (kernel.is_cpu_tier()) tiers.push_back(kernel);
  }
  return tiers;
}

std::vector<KernelCase> cuda_kernels() {
  std::vector<KernelCase> kernels = all_kernels();
  std::erase_if(kernels, [](const KernelCase& kernel) { return kernel.on_cpu(); });
  return kernels;
}

std::vector<KernelCase> usable_cpu_tiers() {
  std::vector<KernelCase> tiers;
  for (const KernelCase& kernel : cpu_tiers()) {
    if (kernel.usable) tiers.push_back(kernel);
  }
  return tiers;
}

const KernelCase& kernel_named(const std::string& name) {
  for (const KernelCase& kernel : all_kernels()) {
    if (kernel.name == name) return kernel;
  }
  std::cerr << "no kernel is called " << name << "; the table has:";
  for (const KernelCase& kernel : all_kernels()) std::cerr << " " << kernel.name;
  std::cerr << "\n";
  std::exit(2);
}

std::string skip_reason(const KernelCase& kernel) {
  const std::string selected = environment("QATTN_TEST_KERNEL");
  if (!selected.empty() && selected != kernel.name) return "QATTN_TEST_KERNEL is " + selected;
  return kernel.usable ? std::string() : kernel.reason;
}

std::string test_name(const testing::TestParamInfo<KernelCase>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

void KernelTest::SetUp() {
  const std::string reason = skip_reason(kernel());
  if (!reason.empty()) GTEST_SKIP() << kernel().name << ": " << reason;
}

std::uint64_t base_seed() {
  const std::string text = environment("QATTN_TEST_SEED");
  return text.empty() ? 1 : std::strtoull(text.c_str(), nullptr, 10);
}

std::uint64_t case_seed(std::uint64_t index) { return base_seed() * 1000003 + index; }

std::string reproduce() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  if (info == nullptr) return {};
  return "reproduce: QATTN_TEST_SEED=" + std::to_string(base_seed()) +
         " qattn_tests --gtest_filter=" + info->test_suite_name() + "." + info->name();
}

void register_kernel_summary() {
  const std::string selected = environment("QATTN_TEST_KERNEL");
  if (!selected.empty()) kernel_named(selected);
  testing::UnitTest::GetInstance()->listeners().Append(new KernelSummary);
}

}  // namespace qattn::test
