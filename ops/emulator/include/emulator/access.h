// Instructions' accesses to global memory: bounds, values, and order.
#pragma once
#include "op.h"

namespace emulator {

inline Region& Op::locate_gm(const GmRef& ref, uint64_t from, uint64_t to, const char* role,
                             bool write) const {
  const auto what = [&] { return std::string(role) + " of " + num(to - from) + " bytes "; };
  Region* region = core.launch->find(ref.origin);
  EMULATOR_REQUIRE(*this, region != nullptr, Kind::kGmBounds,
               what() + "belongs to a GlobalTensor that starts outside every registered tensor",
               "check the address that SetGlobalBuffer was given");
  const auto tensor = [&] { return "'" + region->name + "' (" + num(region->bytes) + " bytes)"; };
  EMULATOR_REQUIRE(*this, from >= region->begin, Kind::kGmBounds, what() + "starts before " + tensor(),
               "check the offset");
  const uint64_t at = from - region->begin;
  EMULATOR_REQUIRE(*this, to <= region->end(), Kind::kGmBounds,
               what() + "at byte " + num(at) + " of " + tensor() + " ends " +
                   num(to - region->end()) + " bytes past its end",
               "copy tails with DataCopyPad and their own length");
  EMULATOR_REQUIRE(*this, ref.limit == 0 || to <= ref.limit, Kind::kGmBounds,
               what() + "at byte " + num(at) + " of " + tensor() + " ends " + num(to - ref.limit) +
                   " bytes past the size given to SetGlobalBuffer",
               "check the offset and that size");
  if (region->row_pitch != 0) {
    const uint64_t row = at / region->row_pitch, column = at % region->row_pitch;
    EMULATOR_REQUIRE(*this, column + (to - from) <= region->row_bytes, Kind::kGmBounds,
                 what() + "at byte " + num(column) + " of row " + num(row) + " of '" +
                     region->name + "' reaches into the gap after the row (" +
                     num(region->row_bytes) + " bytes)",
                 "copy tails with DataCopyPad and their own length; advance by the row stride");
  }
  EMULATOR_REQUIRE(*this, !write || region->access != Access::kInput, Kind::kReadOnly,
               what() + "writes '" + region->name + "', which is an input",
               "write to an output or a workspace");
  return *region;
}

inline void Op::touch_gm(const GmRef& ref, const void* pointer, uint64_t bytes, const char* role,
                         bool write, bool cached) const {
  if (bytes == 0) return;
  const uint64_t from = reinterpret_cast<uint64_t>(pointer), to = from + bytes;
  Region& region = locate_gm(ref, from, to, role, write);
  if (!core.launch->options.checks) return;
  if (!region.init.empty()) {
    uint8_t* init = region.init.data() + (from - region.begin);
    if (write) {
      std::memset(init, 1, bytes);
    } else if (const void* hole = std::memchr(init, 0, bytes)) {
      fail(Kind::kUninitialised,
           std::string(role) + " reads byte " +
               num(static_cast<const uint8_t*>(hole) - region.init.data()) + " of '" + region.name +
               "', which nothing has written",
           "write it first; if another core does, SyncAll between");
    }
  }
  if (region.access == Access::kInput) return;
  ++core.launch->time;
  check_lines(region, from, to, role, write, cached);
  order_gm(region, from, to, role, write);
}

inline void Op::order_gm(Region& region, uint64_t from, uint64_t to, const char* role,
                         bool write) const {
  const Touch now{core.index, pipe_, core.seq[pipe_], core.epoch, core.launch->time};
  auto conflict = [&](const Touch& then, bool was_write) {
    if (then.core < 0 || then.epoch < core.epoch) return;
    const auto what = [&] {
      return std::string(role) + (write ? " writes" : " reads") + " bytes of '" + region.name +
             "' that ";
    };
    if (then.core != core.index) {
      fail(Kind::kCoreRace,
           what() + "core " + num(then.core) + (was_write ? " has written" : " reads"),
           "SyncAll between the two, or give every core its own bytes");
    }
    if (then.seq == now.seq && then.pipe == pipe_) return;
    if (!core.ordered(pipe_, then.pipe, then.seq, was_write)) {
      fail(Kind::kUnordered,
           what() + "pipe " + pipe_name(then.pipe) + " may still be " +
               (was_write ? "writing" : "reading"),
           then.pipe == pipe_ ? std::string("PipeBarrier<PIPE_") + pipe_name(pipe_) + ">"
                              : std::string("SetFlag and WaitFlag of HardEvent::") +
                                    pipe_name(then.pipe) + "_" + pipe_name(pipe_));
    }
  };
  region.each(from, to, [&](Segment& segment) {
    conflict(segment.write, true);
    if (write) {
      for (const Touch& read : segment.reads) conflict(read, false);
      segment.write = now;
      segment.reads.clear();
      return;
    }
    for (Touch& read : segment.reads) {
      if (read.core == now.core && read.pipe == now.pipe) {
        read = now;
        return;
      }
    }
    segment.reads.push_back(now);
  });
}

}  // namespace emulator
