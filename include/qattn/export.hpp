// QATTN_API marks what the shared library exports; everything else is hidden.
#pragma once

#define QATTN_API __attribute__((visibility("default")))
