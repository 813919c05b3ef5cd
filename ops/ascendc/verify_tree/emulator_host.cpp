// Runs verify_tree's kernels under the emulator.
#include "verify_tree.cpp"

#include "../verify_seeded/emulator_tensors.h"
#include "plan.h"

extern "C" int spec_run_verify_tree(const spec_launch* launch, const spec_verify_tree* call) {
  spec::Tiling tiling;
  const std::string problem = spec::plan(*call, launch->num_cores, spec::wish_of(*launch), tiling);
  if (!problem.empty()) return spec::refuse(*launch, problem);

  spec::Workspace workspace(tiling.workspace);
  emulator::Kernel kernel("verify_tree", launch->options);
  spec::add_seeded_tensors(kernel, *call);
  if (call->parents != nullptr) {
    kernel.input("parents", call->parents, (call->num_rows - call->num_reqs) * 4);
  }
  kernel.output("output_rows", call->paths, call->num_reqs * (call->max_draft_len + 1) * 4);
  kernel.workspace("workspace", workspace.data(), tiling.workspace);

#define SPEC_RUN(kernel) kernel(SPEC_TREE_CALL(*call, tiling, workspace.data()))
  const auto body = [&] { SPEC_FOR_DTYPE(call->dtype, spec_verify_tree, SPEC_RUN) };
  return spec::status_of(
      kernel.run(static_cast<int>(tiling.cores), body, launch->stats, launch->error));
}
