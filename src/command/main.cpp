// The command `qattn`.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "command/command.hpp"
#include "command/usage.hpp"

namespace {

using qattn::command::DemoOptions;
using qattn::command::InfoOptions;
using qattn::command::RunOptions;
using qattn::command::VerifyOptions;

constexpr int kBadInput = 2;

// An empty argument is a variable that a script did not set, not an option that was left out.
CLI::Validator names_a(const std::string& what) {
  return {[what](const std::string& text) {
            return text.empty() ? "no " + what + " is named" : std::string();
          },
          /*validator_desc=*/""};
}

// Throws for what is no number, and for what float32 would make infinity or zero of.
float softmax_scale(const std::string& text) {
  const std::string flag = "--softmax-scale";
  char* end = nullptr;
  errno = 0;
  const float value = std::strtof(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size()) {
    throw CLI::ValidationError(flag, "is '" + text + "' (allowed: a number)");
  }
  if (errno == ERANGE && (value == 0.0F || std::isinf(value))) {
    throw CLI::ValidationError(
        flag, "is " + text +
                  ", which float32 cannot hold (allowed: 0, or a magnitude of 1e-45 to 3.4e38)");
  }
  return value;
}

// All sub-commands' arguments; `chosen` runs the one that was given.
struct Arguments {
  InfoOptions info;
  VerifyOptions verify;
  RunOptions run;
  DemoOptions demo;
  std::function<int()> chosen;
};

void add_info(CLI::App& app, Arguments& arguments) {
  CLI::App* const command =
      app.add_subcommand("info", "The machine, its features, and each kernel: usable or why not");
  command->add_flag("--json", arguments.info.json, "Print JSON");
  command->callback([&] { arguments.chosen = [&] { return info(arguments.info); }; });
}

void add_verify(CLI::App& app, Arguments& arguments) {
  VerifyOptions& o = arguments.verify;
  CLI::App* const command = app.add_subcommand(
      "verify", "Every usable kernel against the float64 reference; exit code 1 if one fails");
  command->add_flag("--quick", o.quick, "Without the cases that take long");
  command->add_option("--kernel", o.kernel, "Only this kernel, for example cpu/avx2")
      ->check(names_a("kernel"));
  command->add_flag("--json", o.json, "Print JSON");
  command->callback([&] { arguments.chosen = [&] { return verify(arguments.verify); }; });
}

void add_run(CLI::App& app, Arguments& arguments) {
  RunOptions& o = arguments.run;
  CLI::App* const command = app.add_subcommand(
      "run", "Attention over .npy files: int8 with scales, or floats that are quantised per head");
  command->add_option("--q", o.files.q, "(batch, seq_q, heads_q, head_dim) or without batch")
      ->required();
  command->add_option("--k", o.files.k, "(batch, seq_k, heads_kv, head_dim)")->required();
  command->add_option("--v", o.files.v, "(batch, seq_k, heads_kv, head_dim)")->required();
  command->add_option("--q-scale", o.files.q_scale, "float32 (heads_q,), for int8 tensors");
  command->add_option("--k-scale", o.files.k_scale, "float32 (heads_kv,), for int8 tensors");
  command->add_option("--v-scale", o.files.v_scale, "float32 (heads_kv,), for int8 tensors");
  command->add_option("--out", o.out, "Write the output here, float32, shaped as q");
  command->add_option("--lse", o.lse, "Write the log-sum-exp here, (batch, heads_q, seq_q)");
  for (const char* const flag :
       {"--q", "--k", "--v", "--q-scale", "--k-scale", "--v-scale", "--out", "--lse"}) {
    command->get_option(flag)->check(names_a("file"));
  }
  command->add_option("--device", o.device, "auto, cpu, cuda or cuda:N");
  command->add_option("--kernel", o.kernel, "Force this kernel, for example cpu/avx2")
      ->check(names_a("kernel"));
  command->add_option("--mask", o.mask, "causal or full")->check(CLI::IsMember({"causal", "full"}));
  command->add_option("--precision", o.precision, "high or fast")
      ->check(CLI::IsMember({"high", "fast"}));
  command
      ->add_option_function<std::string>(
          "--softmax-scale",
          [&o](const std::string& text) { o.softmax_scale = softmax_scale(text); },
          "Factor of the scores; 1/sqrt(head_dim)")
      ->type_name("FLOAT");
  command->add_option("--threads", o.threads, "CPU threads at most; 0: OpenMP's choice")
      ->check(CLI::Range(0, 1 << 16));
  command->add_option("--repeat", o.repeat, "Measurements to take the median of")
      ->check(CLI::Range(1, 1 << 20));
  command->add_flag("--check", o.check,
                    "Compare with float64; exit code 1 where either has NaN or infinity");
  command->add_flag("--json", o.json, "Print JSON");
  command->callback([&] { arguments.chosen = [&] { return run(arguments.run); }; });
}

void add_demo(CLI::App& app, Arguments& arguments) {
  DemoOptions& o = arguments.demo;
  CLI::App* const command = app.add_subcommand(
      "demo", "Times and errors over the stored tensors of a real model, for every kernel");
  command->add_option("--data", o.data, "Folder with NAME_q.npy, NAME_k.npy, NAME_v.npy")
      ->check(names_a("folder"));
  command->add_option("--device", o.device, "auto, cpu, cuda or cuda:N");
  command->add_flag("--best", o.best, "Only the best kernel");
  command->add_option("--repeat", o.repeat, "Measurements to take the median of")
      ->check(CLI::Range(1, 1 << 20));
  command->callback([&] { arguments.chosen = [&] { return demo(arguments.demo); }; });
}

int complain(const char* what) {
  std::fprintf(stderr, "qattn: %s\n", what);
  return kBadInput;
}

// `code`, unless something of what was printed could not be written; an earlier flush has
// forgotten why, the stream has not.
int finish_output(int code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return written ? code : complain("standard output cannot be written");
}

int run_chosen(const Arguments& arguments) {
  try {
    return finish_output(arguments.chosen());
  } catch (const std::bad_alloc&) {
    return complain("out of memory");
  } catch (const qattn::Error& error) {
    return complain(qattn::command::in_flags(error.what()).c_str());
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}

// What is wrong with the first argument as a sub-command; empty if nothing is, or if it is a flag.
std::string subcommand_fault(const CLI::App& app, int argc, char** argv) {
  const std::string given = argc < 2 ? "" : argv[1];
  if (!given.empty() && given.front() == '-') return {};
  std::string known;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == given) return {};
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  const std::string fault =
      argc < 2 ? "a sub-command is missing" : "there is no sub-command '" + given + "'";
  return fault + " (allowed: " + known + "; qattn --help describes them)";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("INT8 attention on the best kernel of this machine");
  app.name("qattn");
  app.set_version_flag("--version", std::string("qattn ") + qattn::version());
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("qattn: ") + error.what() + "\n";
  });
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();  // --help shows defaults
  Arguments arguments;
  add_info(app, arguments);
  add_verify(app, arguments);
  add_run(app, arguments);
  add_demo(app, arguments);
  const std::string fault = subcommand_fault(app, argc, argv);
  if (!fault.empty()) return complain(fault.c_str());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for = app.exit(error) == 0;  // --help, --version
    return asked_for ? finish_output(0) : kBadInput;
  }
  return run_chosen(arguments);
}
