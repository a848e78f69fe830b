// Which HIP the headers of this folder speak: 7.1. Debian's own are of 5.2, and ggml chooses its calls by this number.
#pragma once

#define HIP_VERSION_MAJOR      7
#define HIP_VERSION_MINOR      1
#define HIP_VERSION_PATCH      0
#define HIP_VERSION_BUILD_ID   0
#define HIP_VERSION_GITHASH    ""
#define HIP_VERSION_BUILD_NAME ""
#define HIP_VERSION            (HIP_VERSION_MAJOR * 10000000 + HIP_VERSION_MINOR * 100000 + HIP_VERSION_PATCH)
