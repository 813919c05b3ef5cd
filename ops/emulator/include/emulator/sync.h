// Order between pipes and between cores, and what a kernel asks about its launch.
#pragma once
#include "queue.h"

enum KernelType {
  KERNEL_TYPE_AIV_ONLY,
  KERNEL_TYPE_AIC_ONLY,
  KERNEL_TYPE_MIX_AIV_1_0,
  KERNEL_TYPE_MIX_AIC_1_0,
  KERNEL_TYPE_MIX_AIC_1_1,
  KERNEL_TYPE_MIX_AIC_1_2
};

namespace AscendC {

template <pipe_t pipe>
void PipeBarrier(EMULATOR_SITE) {
  static_assert(pipe == PIPE_V || pipe == PIPE_MTE2 || pipe == PIPE_MTE3 || pipe == PIPE_ALL,
                "PipeBarrier: PIPE_V, PIPE_MTE2, PIPE_MTE3 or PIPE_ALL");
  emulator::Core& core = emulator::require_core("PipeBarrier");
  if constexpr (pipe == PIPE_ALL) {
    core.order_all();
  } else {
    core.order(pipe, pipe);
  }
  static_cast<void>(site);
}

template <HardEvent event>
void SetFlag(TEventID id, EMULATOR_SITE) {
  constexpr int e = emulator::event_index(event);
  emulator::Core& core = emulator::require_core("SetFlag");
  const std::string name = emulator::event_name(e) + " " + std::to_string(id);
  auto fail = [&](const std::string& what, const std::string& remedy) {
    emulator::fail_here(core, emulator::Kind::kFlag, "SetFlag", site, what, remedy);
  };
  if (id < 0 || id >= emulator::kEventIds) fail("event id " + std::to_string(id), "0 to 7");
  const unsigned bit = 1u << id;
  if (core.pipe != nullptr && ((core.ids_leased[e] | core.ids_fetched[e]) & bit) == 0) {
    fail("event " + name + " was not obtained from this TPipe, which may use it itself",
         "FetchEventID or AllocEventID");
  }
  emulator::Flag& flag = core.flags[e][id];
  if (flag.set) {
    fail("event " + name + " is already set, by " + flag.site, "WaitFlag first, or another id");
  }
  flag.set = true;
  flag.clock = core.snapshot(emulator::event_pipes(e).first);
  flag.site = emulator::site_text(site);
}

template <HardEvent event>
void WaitFlag(TEventID id, EMULATOR_SITE) {
  constexpr int e = emulator::event_index(event);
  emulator::Core& core = emulator::require_core("WaitFlag");
  if (id < 0 || id >= emulator::kEventIds || !core.flags[e][id].set) {
    emulator::fail_here(core, emulator::Kind::kFlag, "WaitFlag", site,
                    "event " + emulator::event_name(e) + " " + std::to_string(id) +
                        " is not set; the device waits for ever",
                    "SetFlag with the same event and id first");
  }
  core.flags[e][id].set = false;
  core.clock[emulator::event_pipes(e).second].join(core.flags[e][id].clock);
}

inline int64_t GetBlockIdx() { return emulator::require_core("GetBlockIdx").index; }
inline int64_t GetBlockNum() { return emulator::require_core("GetBlockNum").launch->num_blocks; }
inline int64_t GetSubBlockNum() { return 1; }
inline int64_t GetTaskRatio() { return 1; }

// All cores of the launch meet; what any of them did before is visible to all after.
template <bool isAIVOnly = true>
void SyncAll(EMULATOR_SITE) {
  static_assert(isAIVOnly, "SyncAll<false> is for kernels with cube cores");
  emulator::Core& core = emulator::require_core("SyncAll");
  if (!core.may_sync_all) {
    emulator::fail_here(core, emulator::Kind::kSyncAll, "SyncAll", site,
                    "the kernel's type has no synchronisation of all cores",
                    "KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0)");
  }
  core.order_all();
  core.launch->wait_for_all();
  ++core.epoch;
}

}  // namespace AscendC

namespace emulator {

inline void set_kernel_type(KernelType type) {
  require_core("KERNEL_TASK_TYPE_DEFAULT").may_sync_all =
      type != KERNEL_TYPE_AIV_ONLY && type != KERNEL_TYPE_AIC_ONLY;
}

inline void kernel_assert(bool holds, const char* text, const Site& site = Site::here()) {
  if (holds) return;
  fail_here(require_core("ascendc_assert"), Kind::kAssertion, "ascendc_assert", site,
            std::string("'") + text + "' does not hold", "");
}

}  // namespace emulator

#define KERNEL_TASK_TYPE_DEFAULT(type) ::emulator::set_kernel_type(type)
#define ascendc_assert(condition, ...) ::emulator::kernel_assert((condition), #condition)
#define ASCENDC_ASSERT(condition, ...) ::emulator::kernel_assert((condition), #condition)
#define PRINTF(...) static_cast<void>(0)
