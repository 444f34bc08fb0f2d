/* C11's memory order for the words of a segment; see memory_order.py.

   GCC's and Clang's __atomic built-ins take plain memory, which the segment is to
   everybody else. On AArch64 a load-acquire is LDAR or LDAPR, a store-release STLR. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    uint64_t *words;
    Py_ssize_t count;
} Words;

static int words_init(Words *self, PyObject *arguments, PyObject *keywords)
{
    PyObject *source;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) != 0) {
        PyErr_SetString(PyExc_TypeError, "no keyword arguments are taken");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "O", &source))
        return -1;
    if (self->words != NULL) {
        PyErr_SetString(PyExc_TypeError, "made already");
        return -1;
    }
    if (PyObject_GetBuffer(source, &self->view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0)
        return -1;
    if (self->view.itemsize != 8 || self->view.format == NULL ||
        self->view.format[0] != 'Q' || (uintptr_t)self->view.buf % 8 != 0) {
        PyBuffer_Release(&self->view);
        PyErr_SetString(PyExc_TypeError, "the words must be aligned and of format Q");
        return -1;
    }
    self->words = self->view.buf;
    self->count = self->view.len / 8;
    return 0;
}

static void words_dealloc(Words *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->words != NULL)
        PyBuffer_Release(&self->view);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* The number of a word; -1 with an exception set. */
static Py_ssize_t place_of(Words *self, PyObject *index)
{
    Py_ssize_t place = PyNumber_AsSsize_t(index, PyExc_IndexError);
    if (place == -1 && PyErr_Occurred())
        return -1;
    if (place < 0)
        place += self->count;
    if (place < 0 || place >= self->count) {
        PyErr_SetString(PyExc_IndexError, "there is no such word");
        return -1;
    }
    return place;
}

static PyObject *copy_of(Words *self, PyObject *index)
{
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(index, &start, &stop, &step) < 0)
        return NULL;
    Py_ssize_t count = PySlice_AdjustIndices(self->count, &start, &stop, step);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * 8);
    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(bytes);
    for (Py_ssize_t number = 0; number < count; number++) {
        uint64_t word = __atomic_load_n(self->words + start + number * step, __ATOMIC_RELAXED);
        memcpy(to + number * 8, &word, 8);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    PyObject *view = PyMemoryView_FromObject(bytes);
    Py_DECREF(bytes);
    if (view == NULL)
        return NULL;
    PyObject *cast = PyObject_CallMethod(view, "cast", "s", "Q");
    Py_DECREF(view);
    return cast;
}

static PyObject *load(Words *self, PyObject *index)
{
    if (PySlice_Check(index))
        return copy_of(self, index);
    Py_ssize_t place = place_of(self, index);
    if (place < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(__atomic_load_n(self->words + place, __ATOMIC_ACQUIRE));
}

static int store(Words *self, PyObject *index, PyObject *value)
{
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "a word cannot be deleted");
        return -1;
    }
    if (self->view.readonly) {
        PyErr_SetString(PyExc_TypeError, "these words are read-only");
        return -1;
    }
    Py_ssize_t place = place_of(self, index);
    if (place < 0)
        return -1;
    PyObject *number = PyNumber_Index(value);
    if (number == NULL)
        return -1;
    unsigned long long word = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (word == (unsigned long long)-1 && PyErr_Occurred())
        return -1;
    __atomic_store_n(self->words + place, (uint64_t)word, __ATOMIC_RELEASE);
    return 0;
}

static PyObject *full_fence(PyObject *module, PyObject *nothing)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    Py_RETURN_NONE;
}

static PyObject *acquire_fence(PyObject *module, PyObject *nothing)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    Py_RETURN_NONE;
}

static PyObject *release_fence(PyObject *module, PyObject *nothing)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
    Py_RETURN_NONE;
}

static PyType_Slot acquiring_slots[] = {
    {Py_tp_doc, "Words whose loads acquire."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, words_init},
    {Py_tp_dealloc, words_dealloc},
    {Py_mp_subscript, load},
    {0, NULL},
};
static PyType_Slot releasing_slots[] = {
    {Py_tp_doc, "Words whose stores release."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, words_init},
    {Py_tp_dealloc, words_dealloc},
    {Py_mp_ass_subscript, store},
    {0, NULL},
};
static PyType_Spec acquiring = {
    "ringbatch.shm._memory_order.AcquiringWords", sizeof(Words), 0, Py_TPFLAGS_DEFAULT,
    acquiring_slots,
};
static PyType_Spec releasing = {
    "ringbatch.shm._memory_order.ReleasingWords", sizeof(Words), 0, Py_TPFLAGS_DEFAULT,
    releasing_slots,
};

static int fill(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&acquiring);
    if (type == NULL || PyModule_AddObjectRef(module, "AcquiringWords", type) < 0)
        return -1;
    Py_DECREF(type);
    type = PyType_FromSpec(&releasing);
    if (type == NULL || PyModule_AddObjectRef(module, "ReleasingWords", type) < 0)
        return -1;
    Py_DECREF(type);
    return 0;
}

static PyMethodDef functions[] = {
    {"full_fence", full_fence, METH_NOARGS, "Let earlier stores be seen before later loads."},
    {"acquire_fence", acquire_fence, METH_NOARGS, "Have earlier loads done before what follows."},
    {"release_fence", release_fence, METH_NOARGS, "Have what precedes done before later stores."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_memory_order", "C11's memory order for words of shared memory.", 0,
    functions, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__memory_order(void)
{
    return PyModuleDef_Init(&module);
}
