// Runs verify_seeded's kernels under the emulator.
#include "verify_seeded.cpp"

#include "emulator_tensors.h"
#include "plan.h"

extern "C" int spec_run_verify_seeded(const spec_launch* launch, const spec_verify_seeded* call) {
  spec::Tiling tiling;
  const std::string problem = spec::plan(*call, launch->num_cores, spec::wish_of(*launch), tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  spec::Workspace workspace(tiling.workspace);
  emulator::Kernel kernel("verify_seeded", launch->options);
  spec::add_seeded_tensors(kernel, *call);
  kernel.workspace("workspace", workspace.data(), tiling.workspace);

#define SPEC_RUN(kernel) kernel(SPEC_SEEDED_CALL(*call, tiling, workspace.data()))
  const auto body = [&] { SPEC_FOR_DTYPE(call->dtype, spec_verify_seeded, SPEC_RUN) };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
