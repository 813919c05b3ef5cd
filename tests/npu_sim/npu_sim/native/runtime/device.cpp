// Devices and contexts. A device is only a number here; a context is a device that was chosen.
#include <cstdlib>
#include <unistd.h>

#include "api.h"

namespace {

struct Context {
  int32_t device;
};

constexpr int kMaxDevices = 64;
constexpr uint32_t kCores = 20;
Context contexts[kMaxDevices];
thread_local int32_t current_device = -1;

int32_t device_count() {
  static const int32_t count = npu_sim::environment("NPU_SIM_DEVICES", 1);
  return count;
}

}  // namespace

ACL_API AclError aclrtGetDeviceCount(uint32_t* count) {
  *count = device_count();
  return kOk;
}

ACL_API AclError aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= device_count())
    return npu_sim::fail(kInvalidParam, "there is no device " + std::to_string(device) +
                                            "; NPU_SIM_DEVICES says how many there are");
  current_device = device;
  return kOk;
}

ACL_API AclError aclrtResetDevice(int32_t) {
  current_device = -1;
  return kOk;
}

ACL_API AclError aclrtGetDevice(int32_t* device) {
  if (current_device < 0) return kNoContext;
  *device = current_device;
  return kOk;
}

ACL_API AclError aclrtGetCurrentContext(void** context) {
  if (current_device < 0) return kNoContext;
  contexts[current_device].device = current_device;
  *context = &contexts[current_device];
  return kOk;
}

ACL_API AclError aclrtSetCurrentContext(void* context) {
  if (context) current_device = static_cast<Context*>(context)->device;
  return kOk;
}

ACL_API AclError aclrtGetPrimaryCtxState(int32_t, uint32_t* flags, int32_t* active) {
  if (flags) *flags = 0;
  *active = 1;
  return kOk;
}

ACL_API const char* aclrtGetSocName() {
  static const char* chosen = getenv("NPU_SIM_SOC");
  return chosen ? chosen : "Ascend910B3";
}

ACL_API AclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) {
  *can = 1;
  return kOk;
}
ACL_API AclError aclrtDeviceEnablePeerAccess(int32_t, uint32_t) { return kOk; }
ACL_API AclError aclrtDeviceGetBareTgid(int32_t* pid) {
  *pid = getpid();
  return kOk;
}
ACL_API AclError aclGetDeviceCapability(uint32_t, int, int64_t* value) {
  *value = 1;
  return kOk;
}
ACL_API AclError aclrtGetDeviceInfo(uint32_t, int, int64_t* value) {
  *value = kCores;
  return kOk;
}
ACL_API AclError aclrtGetDeviceResLimit(int32_t, int, uint32_t* value) {
  *value = kCores;
  return kOk;
}
ACL_API AclError aclrtGetStreamResLimit(void*, int, uint32_t* value) {
  *value = kCores;
  return kOk;
}
ACL_API AclError aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logical) {
  *logical = user;
  return kOk;
}
ACL_API AclError aclrtGetDeviceUtilizationRate(int32_t, void*) { return kOk; }
