// Headers that kernels use but that are not compiled per instruction set.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "collect.h"
#include "kept.h"
#include "lanes.h"
#include "ones.h"
#include "threads.h"
