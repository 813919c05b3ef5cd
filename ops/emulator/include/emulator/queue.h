// TPipe, TQue and TBuf: who owns which part of the unified buffer, and when it changes hands.
#pragma once
#include "tensor.h"

namespace emulator {

constexpr int event_index(AscendC::HardEvent event) { return static_cast<int>(event); }

// The pipes of an event: {who sets it, who waits for it}.
inline std::pair<int, int> event_pipes(int event) {
  static const std::pair<int, int> pipes[kEvents] = {
      {PIPE_S, PIPE_V},       {PIPE_S, PIPE_MTE2}, {PIPE_S, PIPE_MTE3}, {PIPE_V, PIPE_S},
      {PIPE_V, PIPE_MTE2},    {PIPE_V, PIPE_MTE3}, {PIPE_MTE2, PIPE_S}, {PIPE_MTE2, PIPE_V},
      {PIPE_MTE2, PIPE_MTE3}, {PIPE_MTE3, PIPE_S}, {PIPE_MTE3, PIPE_V}, {PIPE_MTE3, PIPE_MTE2}};
  return pipes[event];
}

inline std::string event_name(int event) {
  const auto pipes = event_pipes(event);
  return std::string(pipe_name(pipes.first)) + "_" + pipe_name(pipes.second);
}

inline int free_event_id(const Core& core, int event) {
  for (int id = 0; id < kEventIds; ++id) {
    if ((core.ids_taken[event] & (1u << id)) == 0) return id;
  }
  return -1;
}

// Cuts `bytes` out of the unified buffer; returns the buffer's index.
inline int32_t take_buffer(Core& core, uint32_t bytes, AscendC::TPosition position, bool in_queue,
                           const Site& site) {
  const uint64_t rounded =
      (static_cast<uint64_t>(bytes) + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  const uint64_t end = core.ub_top + rounded, room = kUbBytes - core.ub_reserved;
  if (end > room) {
    fail_here(core, Kind::kUbOverflow, "TPipe::InitBuffer", site,
              num(end) + " bytes of unified buffer in all, " + num(end - room) + " more than the " +
                  num(room) + " there are",
              "shorten the tiles or share buffers");
  }
  if (bytes == 0) {
    fail_here(core, Kind::kArgument, "TPipe::InitBuffer", site, "a buffer of 0 bytes",
              "give it a length");
  }
  if (core.buffers.size() >= kMaxBuffers) {
    fail_here(core, Kind::kArgument, "TPipe::InitBuffer", site, "more than 64 buffers in a kernel",
              "join small buffers into one TBuf");
  }
  Buffer buffer;
  buffer.begin = core.ub_top;
  buffer.bytes = static_cast<uint32_t>(rounded);
  buffer.position = position;
  buffer.in_queue = in_queue;
  buffer.hold = in_queue ? Hold::kFree : Hold::kHeld;
  core.ub_top += buffer.bytes;
  core.peak_ub = std::max(core.peak_ub, core.ub_top);
  core.buffers.push_back(buffer);
  return static_cast<int32_t>(core.buffers.size()) - 1;
}

template <typename T>
AscendC::LocalTensor<T> tensor_of(const Core& core, int32_t index) {
  const Buffer& buffer = core.buffers[index];
  const UbRef ref{index, buffer.generation, buffer.begin, buffer.bytes};
  return AscendC::LocalTensor<T>(ref, buffer.position);
}

}  // namespace emulator

namespace AscendC {

template <TPosition position = TPosition::VECCALC>
class TBuf {
 public:
  template <typename T>
  LocalTensor<T> Get(EMULATOR_SITE) const {
    emulator::Core& core = emulator::require_core("TBuf::Get");
    if (buffer_ < 0) {
      emulator::fail_here(core, emulator::Kind::kQueueOrder, "TBuf::Get", site, "InitBuffer was not called",
                      "call TPipe::InitBuffer first");
    }
    return emulator::tensor_of<T>(core, buffer_);
  }
  template <typename T>
  LocalTensor<T> Get(uint32_t size, EMULATOR_SITE) const {
    LocalTensor<T> tensor = Get<T>(site);
    tensor.SetSize(size, site);
    return tensor;
  }
  template <typename T>
  LocalTensor<T> GetWithOffset(uint32_t size, uint32_t byte_offset, EMULATOR_SITE) const {
    LocalTensor<uint8_t> bytes = Get<uint8_t>(site)[byte_offset];
    LocalTensor<T> tensor = bytes.template ReinterpretCast<T>();
    tensor.SetSize(size, site);
    return tensor;
  }

 private:
  friend class TPipe;
  int32_t buffer_ = -1;
};

template <TPosition position, int32_t depth, int32_t mask = 0>
class TQue {
  static_assert(position == TPosition::VECIN || position == TPosition::VECOUT,
                "the emulator has queues at VECIN and VECOUT only");
  static_assert(depth >= 1, "the emulator has no in-place queues (depth 0)");
  static constexpr bool is_input = position == TPosition::VECIN;
  static constexpr int kProducer = is_input ? PIPE_MTE2 : PIPE_V;
  static constexpr int kConsumer = is_input ? PIPE_V : PIPE_MTE3;

 public:
  template <typename T>
  LocalTensor<T> AllocTensor(EMULATOR_SITE) {
    emulator::Core& core = core_of("TQue::AllocTensor", site);
    for (int32_t index : buffers_) {
      emulator::Buffer& buffer = core.buffers[index];
      if (buffer.hold != emulator::Hold::kFree) continue;
      buffer.hold = emulator::Hold::kHeld;
      ++buffer.generation;
      core.clock[kProducer].join(buffer.clock);
      if (core.launch->options.checks) {
        std::memset(core.ub_init.data() + buffer.begin, 0, buffer.bytes);
      }
      return emulator::tensor_of<T>(core, index);
    }
    emulator::fail_here(core, emulator::Kind::kQueueDepth, "TQue::AllocTensor", site,
                    "all " + emulator::num(buffers_.size()) +
                        " buffers are in use; the device waits "
                        "for ever",
                    "FreeTensor after the last use, or InitBuffer with more buffers");
  }

  template <typename T>
  bool EnQue(const LocalTensor<T>& tensor, EMULATOR_SITE) {
    emulator::Core& core = core_of("TQue::EnQue", site);
    emulator::Buffer& buffer = held(core, tensor.ref(), "TQue::EnQue", site);
    if (waiting_.size() >= static_cast<size_t>(depth)) {
      emulator::fail_here(
          core, emulator::Kind::kQueueDepth, "TQue::EnQue", site,
          emulator::num(waiting_.size() + 1) + " tensors in a queue of depth " + emulator::num(depth),
          "DeQue first, or declare a deeper queue");
    }
    buffer.hold = emulator::Hold::kQueued;
    buffer.clock = core.snapshot(kProducer);
    waiting_.push_back(tensor.ref().buffer);
    return true;
  }

  template <typename T>
  LocalTensor<T> DeQue(EMULATOR_SITE) {
    emulator::Core& core = core_of("TQue::DeQue", site);
    if (waiting_.empty()) {
      emulator::fail_here(core, emulator::Kind::kQueueOrder, "TQue::DeQue", site, "the queue is empty",
                      "EnQue first");
    }
    const int32_t index = waiting_.front();
    waiting_.erase(waiting_.begin());
    emulator::Buffer& buffer = core.buffers[index];
    buffer.hold = emulator::Hold::kHeld;
    core.clock[kConsumer].join(buffer.clock);
    return emulator::tensor_of<T>(core, index);
  }

  template <typename T>
  void FreeTensor(LocalTensor<T>& tensor, EMULATOR_SITE) {
    emulator::Core& core = core_of("TQue::FreeTensor", site);
    emulator::Buffer& buffer = held(core, tensor.ref(), "TQue::FreeTensor", site);
    buffer.hold = emulator::Hold::kFree;
    buffer.clock = core.snapshot(kConsumer);
  }

  bool HasTensorInQue() const { return !waiting_.empty(); }
  int32_t GetTensorCountInQue() const { return static_cast<int32_t>(waiting_.size()); }
  bool VacantInQue() const { return waiting_.size() < static_cast<size_t>(depth); }
  bool HasIdleBuffer() const {
    emulator::Core& core = emulator::require_core("TQue::HasIdleBuffer");
    for (int32_t index : buffers_) {
      if (core.buffers[index].hold == emulator::Hold::kFree) return true;
    }
    return false;
  }

 private:
  friend class TPipe;

  emulator::Core& core_of(const char* op, const emulator::Site& site) const {
    emulator::Core& core = emulator::require_core(op);
    if (buffers_.empty()) {
      emulator::fail_here(core, emulator::Kind::kQueueOrder, op, site, "InitBuffer was not called",
                      "call TPipe::InitBuffer first");
    }
    return core;
  }

  emulator::Buffer& held(emulator::Core& core, const emulator::UbRef& ref, const char* op,
                     const emulator::Site& site) const {
    const bool ours = std::find(buffers_.begin(), buffers_.end(), ref.buffer) != buffers_.end();
    if (!ours || core.buffers[ref.buffer].generation != ref.generation ||
        core.buffers[ref.buffer].hold != emulator::Hold::kHeld ||
        core.buffers[ref.buffer].begin != ref.offset) {
      emulator::fail_here(core, emulator::Kind::kQueueOrder, op, site,
                      ours ? "the tensor is not held: it was freed, waits in the queue, or is an "
                             "offset of one"
                           : "the tensor does not come from this queue",
                      "pass what AllocTensor or DeQue of this queue returned, once");
    }
    return core.buffers[ref.buffer];
  }

  std::vector<int32_t> buffers_;
  std::vector<int32_t> waiting_;
};

class TPipe {
 public:
  explicit TPipe(EMULATOR_SITE) {
    emulator::Core& core = emulator::require_core("TPipe");
    if (core.pipe != nullptr) {
      emulator::fail_here(core, emulator::Kind::kArgument, "TPipe", site, "a second TPipe",
                      "use one TPipe in a kernel");
    }
    core.pipe = this;
  }
  ~TPipe() {
    if (emulator::current_core() != nullptr && emulator::current_core()->pipe == this) {
      emulator::current_core()->pipe = nullptr;
    }
  }
  TPipe(const TPipe&) = delete;
  TPipe& operator=(const TPipe&) = delete;

  template <TPosition position>
  bool InitBuffer(TBuf<position>& buf, uint32_t len, EMULATOR_SITE) {
    buf.buffer_ = emulator::take_buffer(emulator::require_core("TPipe"), len, position, false, site);
    return true;
  }
  template <TPosition position, int32_t depth, int32_t mask>
  bool InitBuffer(TQue<position, depth, mask>& que, uint8_t num, uint32_t len, EMULATOR_SITE) {
    emulator::Core& core = emulator::require_core("TPipe");
    int at_position = num;
    for (const emulator::Buffer& buffer : core.buffers) {
      at_position += buffer.in_queue && buffer.position == position ? 1 : 0;
    }
    if (num == 0 || at_position > emulator::kEventIds) {
      emulator::fail_here(core, emulator::Kind::kArgument, "TPipe::InitBuffer", site,
                      emulator::num(at_position) + " queue buffers at " +
                          emulator::position_name(position) + "; there are events for 1 to 8",
                      "use fewer queue buffers, or TBuf for temporaries");
    }
    for (int i = 0; i < num; ++i) {
      que.buffers_.push_back(emulator::take_buffer(core, len, position, true, site));
    }
    return true;
  }

  template <HardEvent event>
  TEventID AllocEventID(EMULATOR_SITE) {
    constexpr int e = emulator::event_index(event);
    emulator::Core& core = emulator::require_core("TPipe::AllocEventID");
    const int id = emulator::free_event_id(core, e);
    if (id < 0) {
      emulator::fail_here(core, emulator::Kind::kFlag, "TPipe::AllocEventID", site,
                      "no event id of " + emulator::event_name(e) + " is left", "ReleaseEventID");
    }
    core.ids_taken[e] |= 1u << id;
    core.ids_leased[e] |= 1u << id;
    return id;
  }
  template <HardEvent event>
  void ReleaseEventID(TEventID id, EMULATOR_SITE) {
    constexpr int e = emulator::event_index(event);
    emulator::Core& core = emulator::require_core("TPipe::ReleaseEventID");
    if (id < 0 || id >= emulator::kEventIds || (core.ids_leased[e] & (1u << id)) == 0) {
      emulator::fail_here(
          core, emulator::Kind::kFlag, "TPipe::ReleaseEventID", site,
          "event id " + std::to_string(id) + " of " + emulator::event_name(e) + " was not allocated",
          "release what AllocEventID returned, once");
    }
    core.ids_taken[e] &= ~(1u << id);
    core.ids_leased[e] &= ~(1u << id);
  }
  template <HardEvent event>
  TEventID FetchEventID(EMULATOR_SITE) {
    return FetchEventID(event, site);
  }
  TEventID FetchEventID(HardEvent event, EMULATOR_SITE) {
    const int e = emulator::event_index(event);
    emulator::Core& core = emulator::require_core("TPipe::FetchEventID");
    const int id = emulator::free_event_id(core, e);
    if (id < 0) {
      emulator::fail_here(core, emulator::Kind::kFlag, "TPipe::FetchEventID", site,
                      "no event id of " + emulator::event_name(e) + " is left", "ReleaseEventID");
    }
    core.ids_fetched[e] |= 1u << id;
    return id;
  }

  void Init() {}
  void Destroy() { Reset(); }
  void Reset() {
    emulator::Core& core = emulator::require_core("TPipe::Reset");
    core.order_all();
    for (emulator::Buffer& buffer : core.buffers) {
      buffer.hold = emulator::Hold::kFree;
      ++buffer.generation;
      buffer.in_queue = false;
    }
    core.ub_top = 0;
  }
};

inline TPipe* GetTPipePtr() { return static_cast<TPipe*>(emulator::require_core("GetTPipePtr").pipe); }

}  // namespace AscendC

using AscendC::GetTPipePtr;  // CANN has it outside the namespace
