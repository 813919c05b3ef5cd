// Order between the pipes of a core, and results that the scalar unit reads.
#pragma once
#include "scalar.h"

namespace spec {

using AscendC::HardEvent;
using AscendC::LocalTensor;

// The second pipe of `event` goes on only when the first has finished what it was given before.
template <HardEvent event>
SPEC_FN void order() {
  const auto id = static_cast<event_t>(::GetTPipePtr()->FetchEventID(event));
  AscendC::SetFlag<event>(id);
  AscendC::WaitFlag<event>(id);
}

SPEC_FN void vector_order() { AscendC::PipeBarrier<PIPE_V>(); }
SPEC_FN void full_order() { AscendC::PipeBarrier<PIPE_ALL>(); }

// Scalar accesses to the unified buffer go between these two.
SPEC_FN void begin_scalar() { order<HardEvent::V_S>(); }
SPEC_FN void end_scalar() { order<HardEvent::S_V>(); }

SPEC_FN float read_one(const LocalTensor<float>& cell, uint32_t index) {
  begin_scalar();
  const float value = cell.GetValue(index);
  end_scalar();
  return value;
}

}  // namespace spec
