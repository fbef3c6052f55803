// Headers that kernels use but that are not compiled per instruction set.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "collect.h"
#include "lanes.h"
#include "layout.h"
#include "lines.h"
#include "ones.h"
#include "table.h"
#include "threads.h"
#include "visits.h"
