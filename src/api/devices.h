// Host devices as the API counts them.
#pragma once

namespace tutti::api {

/// TUTTI_HOST_DEVICES, at least 1.
int hostDevices();

}  // namespace tutti::api
