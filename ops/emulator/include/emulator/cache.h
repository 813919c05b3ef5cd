// The data cache of the scalar unit: 64-byte lines, written back only when the kernel says so.
#pragma once
#include "access.h"

namespace emulator {

// The bits of a line's dirty mask for bytes [from, to).
inline uint64_t line_mask(uint64_t line, uint64_t from, uint64_t to) {
  const uint64_t first = std::max(from, line) - line;
  const uint64_t last = std::min(to, line + kLineBytes) - line;
  const uint64_t below_last = last == kLineBytes ? ~0ull : (1ull << last) - 1;
  return below_last & ~((1ull << first) - 1);
}

// Bytes `mine` of a cache line are accessed: reports it if scalar writes to that line, by this core
// or another, are in the way.
inline void Op::check_writers(const LineWrites& writes, uint64_t mine, const std::string& what,
                              bool write, bool cached) const {
  const bool other = writes.core != core.index;
  if (write && cached && other && (writes.epoch == core.epoch || writes.dirty != 0)) {
    fail(Kind::kCacheShared,
         what + ": core " + num(writes.core) + " writes the same 64-byte cache line with SetValue",
         "keep what cores write at least 64 bytes apart, or write with DataCopyPad");
  }
  if (write && !cached && writes.dirty != 0) {
    fail(Kind::kCacheShared,
         what + " copies into a cache line that core " + num(writes.core) +
             " has changed with SetValue and will write back over it",
         "DataCacheCleanAndInvalid first, or keep the two 64 bytes apart");
  }
  if ((writes.dirty & mine) != 0 && (!cached || other)) {
    fail(Kind::kCacheDirty,
         what + " meets bytes that core " + num(writes.core) + " has only in its data cache",
         "DataCacheCleanAndInvalid after SetValue");
  }
}

// Whether this core's copy of bytes [from, to) of a line still is what memory holds.
inline void Op::check_copy(const Region& region, uint64_t line, uint64_t from, uint64_t to,
                           const std::string& what, bool write) const {
  const uint64_t loaded = core.cached.emplace(line, core.launch->time).first->second;
  region.peek(from, to, [&](const Segment& segment) {
    const Touch& then = segment.write;
    if (then.core < 0 || (then.core == core.index && then.pipe == PIPE_S)) return;
    if (then.time > loaded) {
      fail(Kind::kCacheStale,
           what + " uses a line cached before core " + num(then.core) + " (pipe " +
               pipe_name(then.pipe) + ") wrote it",
           "DataCacheCleanAndInvalid before the access");
    }
    if (write && then.core != core.index && then.epoch == core.epoch) {
      fail(Kind::kCacheShared,
           what + ": core " + num(then.core) + " writes to the same 64-byte cache line",
           "keep what cores write at least 64 bytes apart, or write with DataCopyPad");
    }
  });
}

inline void Op::check_lines(Region& region, uint64_t from, uint64_t to, const char* role,
                            bool write, bool cached) const {
  Launch& launch = *core.launch;
  if (!cached && launch.lines.empty()) return;
  const std::string what = std::string(role) + " of '" + region.name + "'";
  for (uint64_t line = from / kLineBytes * kLineBytes; line < to; line += kLineBytes) {
    const uint64_t mine = line_mask(line, from, to), line_end = line + kLineBytes;
    const auto found = launch.lines.find(line);
    if (found != launch.lines.end()) check_writers(found->second, mine, what, write, cached);
    if (!cached) continue;
    if (!write) {
      check_copy(region, line, std::max(line, from), std::min(line_end, to), what, false);
      continue;
    }
    // A write sends the whole line back, so all of it must be fresh.
    check_copy(region, line, std::max(line, region.begin), std::min(line_end, region.end()), what,
               true);
    LineWrites& writes = launch.lines[line];
    if (writes.core != core.index) writes.dirty = 0;
    writes.core = core.index;
    writes.epoch = core.epoch;
    writes.dirty |= mine;
  }
}

// Writes bytes [from, line end) of a line back; other cores can meet them from now on.
inline void write_back(Core& core, uint64_t line, uint64_t from, LineWrites& writes) {
  Region* region = core.launch->find(from);
  if (region != nullptr) {
    const uint64_t time = ++core.launch->time;
    region->each(from, std::min(line + kLineBytes, region->end()), [&](Segment& segment) {
      if (segment.write.core != core.index || segment.write.pipe != PIPE_S) return;
      segment.write.epoch = core.epoch;
      segment.write.time = time;
    });
  }
  writes.epoch = core.epoch;
  writes.dirty &= ~line_mask(line, from, line + kLineBytes);
}

// DataCacheCleanAndInvalid of the line at `address`, from there to the line's end.
inline void clean_line(Core& core, uint64_t address) {
  const uint64_t line = address / kLineBytes * kLineBytes;
  const auto found = core.launch->lines.find(line);
  if (found != core.launch->lines.end() && found->second.core == core.index) {
    write_back(core, line, address, found->second);
    if (found->second.dirty != 0) return;
  }
  core.cached.erase(line);
}

inline void clean_all_lines(Core& core) {
  for (auto& entry : core.launch->lines) {
    if (entry.second.core != core.index || entry.second.dirty == 0) continue;
    const uint64_t first = entry.first + static_cast<uint64_t>(__builtin_ctzll(entry.second.dirty));
    write_back(core, entry.first, first, entry.second);
  }
  core.cached.clear();
}

}  // namespace emulator
