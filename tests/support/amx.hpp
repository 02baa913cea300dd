// Shared by amx_test.cpp and the processes that it starts.
#pragma once

namespace qattn::test {

/// Exit code of a scenario that this machine cannot show; its output says why.
inline constexpr int kSkip = 77;

}  // namespace qattn::test
