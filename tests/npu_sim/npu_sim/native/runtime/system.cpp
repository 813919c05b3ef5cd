// Initialisation, versions, options and errors.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "api.h"

namespace npu_sim {

static thread_local std::string last_error = "none";

AclError fail(AclError code, const std::string& message) {
  last_error = "npu_sim: " + message;
  return code;
}

int64_t environment(const char* name, int64_t otherwise) {
  const char* value = getenv(name);
  return value ? atoll(value) : otherwise;
}

}  // namespace npu_sim

// Called by the stubs generated at build time (npu_sim/stubs.py): say once what is missing.
extern "C" SIM_API AclError npu_sim_not_simulated(const char* name) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard<std::mutex> lock(mutex);
  if (said.insert(name).second) fprintf(stderr, "npu_sim: %s is not simulated\n", name);
  return npu_sim::fail(kNotSimulated, std::string(name) + " is not simulated");
}

static const char* const kCannVersion = "9.0.0";
constexpr int32_t kCannVersionNumber = 90000;

ACL_API AclError aclInit(const char*) { return kOk; }
ACL_API AclError aclFinalize() { return kOk; }
ACL_API const char* aclGetRecentErrMsg() { return npu_sim::last_error.c_str(); }
ACL_API void aclAppLog(int, const char*, const char*, uint32_t, const char*, ...) {}

// The struct holds two strings of 128 characters: this package's version and the SoC's.
ACL_API AclError aclsysGetCANNVersion(int, char* version) {
  strcpy(version, kCannVersion);
  return kOk;
}
ACL_API AclError aclsysGetVersionStr(const char*, char* version) {
  strcpy(version, kCannVersion);
  return kOk;
}
ACL_API AclError aclsysGetVersionNum(const char*, int32_t* version) {
  *version = kCannVersionNumber;
  return kOk;
}
ACL_API AclError aclGetCannAttribute(int, int32_t* value) {
  *value = 1;
  return kOk;
}

// Options of the compiler and of the device: taken, without effect on a CPU.
ACL_API AclError aclSetCompileopt(int, const char*) { return kOk; }
ACL_API size_t aclGetCompileoptSize(int) { return sizeof("0"); }
ACL_API AclError aclGetCompileopt(int, char* value, size_t) {
  strcpy(value, "0");
  return kOk;
}
ACL_API AclError aclrtSetOpWaitTimeout(uint32_t) { return kOk; }
ACL_API AclError aclrtSetOpExecuteTimeOut(uint32_t) { return kOk; }
ACL_API AclError aclrtSetOpExecuteTimeOutV2(uint64_t, uint64_t* actual) {
  if (actual) *actual = 0;
  return kOk;
}
ACL_API AclError aclrtSetDeviceSatMode(int) { return kOk; }
ACL_API AclError aclrtCtxSetSysParamOpt(int, int64_t) { return kOk; }
ACL_API AclError aclrtSetSysParamOpt(int, int64_t) { return kOk; }
ACL_API AclError aclrtGetSysParamOpt(int, int64_t* value) {
  *value = 0;
  return kOk;
}

// No call fails late here: nothing is left to be reported.
ACL_API AclError aclrtPeekAtLastError(int) { return kOk; }
ACL_API AclError aclrtGetLastError(int) { return kOk; }
