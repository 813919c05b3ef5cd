// What every file of the fake CANN runtime needs: export, error codes, the last error's message.
#pragma once

#include <cstdint>
#include <string>

// Functions with the names and signatures of the CANN runtime, found by the dynamic linker.
#define ACL_API extern "C" __attribute__((visibility("default")))
// Functions that the simulator's own PyTorch extension calls.
#define SIM_API __attribute__((visibility("default")))

using AclError = int32_t;

constexpr AclError kOk = 0;
constexpr AclError kInvalidParam = 100000;
constexpr AclError kNotSimulated = 500003;
constexpr AclError kNoContext = 107002;
constexpr AclError kEndless = 107020;
constexpr AclError kStreamUnjoined = 107025;
constexpr AclError kStreamCaptured = 107027;
constexpr AclError kStreamNotCaptured = 107029;
constexpr AclError kCaptureForbids = 107030;
constexpr AclError kOutOfMemory = 207001;
// A device goes on with wrong data; no code of CANN's says so.
constexpr AclError kOverwritten = 500000;

namespace npu_sim {

// Keep `message` for aclGetRecentErrMsg, where torch_npu looks after a call failed.
SIM_API AclError fail(AclError code, const std::string& message);

// The value of an environment variable, or what it is without.
int64_t environment(const char* name, int64_t otherwise);

}  // namespace npu_sim
