# The memory of results. Included by _core.pyx.

# NumPy's large arrays begin 16 bytes past a line of the cache, and each store of a full vector touches two lines there.
# Results that begin at a line made 1x1 convolutions of few channels 1.1 to 1.4 times as fast (AVX-512). Below FO_PLACED
# bytes the allocation costs as much as it gains.
PLACED = FO_PLACED



cdef void *result_malloc(void *ctx, size_t bytes) noexcept nogil:
    return fo_alloc_result(bytes)


cdef void *result_calloc(void *ctx, size_t count, size_t bytes) noexcept nogil:
    cdef void *p = NULL if bytes and count > <size_t>-1 // bytes else fo_alloc_result(count * bytes)
    return memset(p, 0, count * bytes) if p else NULL


cdef void *result_realloc(void *ctx, void *p, size_t bytes) noexcept nogil:
    return fo_realloc_result(p, bytes)


cdef void result_free(void *ctx, void *p, size_t bytes) noexcept nogil:
    fo_free_result(p)


cdef cnp.PyDataMem_Handler result_memory
strcpy(result_memory.name, b"fusedops")
result_memory.version = 1
result_memory.allocator = cnp.PyDataMemAllocator(NULL, result_malloc, result_calloc, result_realloc, result_free)
cdef object RESULT_MEMORY = PyCapsule_New(&result_memory, b"mem_handler", NULL)
# whatever the user has set in his own context
cdef object NUMPY_MEMORY = contextvars.Context().run(lambda: cnp.PyDataMem_GetHandler())


cdef ndarray new_result(int nd, cnp.npy_intp *dims, const void *x=NULL, fo_place place=FO_AFTER,
                        int dtype=cnp.NPY_FLOAT32):
    """A new array, placed after x, if it is not small and the user has no handler of NumPy's memory."""
    cdef double nbytes = sizeof(float) if dtype == cnp.NPY_FLOAT32 else cnp.PyArray_DescrFromType(dtype).itemsize
    cdef int i
    for i in range(nd):
        nbytes *= dims[i]
    if nbytes < FO_PLACED or cnp.PyDataMem_GetHandler() is not NUMPY_MEMORY:
        return cnp.PyArray_EMPTY(nd, dims, dtype, 0)
    before = cnp.PyDataMem_SetHandler(RESULT_MEMORY)
    try:
        fo_place_results(fo_place_after(x, place))
        return cnp.PyArray_EMPTY(nd, dims, dtype, 0)
    finally:
        cnp.PyDataMem_SetHandler(before)
